"""redis-server under redis-benchmark, while it saves in the background (fork)."""

from __future__ import annotations

import re
import subprocess
from contextlib import AbstractContextManager

from masu.messages import Problem

from .harness import Program, Run, Server, free_port, quietly

REQUESTS, CLIENTS, KEYS, SAVES = 100_000, 50, 20_000, 3
COMMANDS = "set,get,incr,lpush,rpop,sadd,hset,zadd,spop,lrange_100,mset"


class Client:
    def __init__(self, port: int) -> None:
        self.port = str(port)

    def __call__(self, *words: str) -> str:
        return quietly("redis-cli", "-h", "127.0.0.1", "-p", self.port, "-e", *words).strip()

    def info(self, field: str) -> str:
        found = re.search(rf"^{field}:(\S+)", self("info"), re.MULTILINE)
        return found[1] if found else "?"


def save_in_background(server: Server, client: Client) -> None:
    client("bgsave")
    server.wait_for(lambda: client.info("rdb_bgsave_in_progress") == "0", "the background save ends", timeout=60)


def load(run: Run, server: Server, client: Client, port: int) -> None:
    """The benchmark as a process of its own, with saves while it runs."""
    words = ("redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-q", "-n", str(REQUESTS), "-c", str(CLIENTS),
             "-r", "10000", "-d", "200", "-P", "4", "-t", COMMANDS)  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as benchmark:
        try:
            for _ in range(SAVES):
                save_in_background(server, client)
            output, _ = benchmark.communicate(timeout=300)
        finally:
            benchmark.kill()
    if benchmark.returncode or "error" in output.lower():
        raise Problem(f"redis-benchmark: {output[-400:]}")
    run.record("commands benchmarked", len(re.findall(r"requests per second", output)))


def fill(client: Client) -> None:
    """A data set that does not depend on timing: strings, lists, hashes, sorted sets, streams; then some go."""
    script = """
      for i = 1, tonumber(ARGV[1]) do
        redis.call('set', 'string:' .. i, string.rep(tostring(i), i % 60 + 1))
        redis.call('rpush', 'list:' .. i % 200, i, 'item ' .. i)
        redis.call('hset', 'hash:' .. i % 500, 'field ' .. i, i * 7)
        redis.call('zadd', 'scores:' .. i % 100, i * 31 % 1009, 'member ' .. i)
        redis.call('xadd', 'stream:' .. i % 10, i .. '-1', 'value', i)
        if i % 3 == 0 then redis.call('del', 'string:' .. i - 1) end
        if i % 5 == 0 then redis.call('append', 'string:' .. i, string.rep('x', i % 3000)) end
      end
      return redis.call('dbsize')"""
    client("eval", script, "0", str(KEYS))


def start(run: Run, port: int) -> AbstractContextManager[Server]:
    return run.server(
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(run.folder), "--save", "",
        "--enable-debug-command", "yes", "--daemonize", "no", "--appendonly", "no",
    )  # fmt: skip


def run_redis(run: Run) -> None:
    port = free_port()
    client = Client(port)
    with start(run, port) as server, run.timed():
        server.wait_port(port)
        load(run, server, client, port)
        client("flushall")
        fill(client)
        save_in_background(server, client)
        run.record("keys", client("dbsize"))
        run.record("digest of the data", client("debug", "digest"))
        run.record("last background save", client.info("rdb_last_bgsave_status"))
    with start(run, port) as server, run.timed():
        server.wait_port(port)
        server.wait_for(lambda: client.info("loading") == "0", "the data are loaded")
        run.record("digest of the data read back", client("debug", "digest"))


PROGRAMS = (
    Program(
        "redis",
        f"redis-server under redis-benchmark with {SAVES} background saves; data compared, also after a restart",
        packages=("redis-server", "redis-tools"),
        probe=("redis-server", "--version"),
        run=run_redis,
    ),
)
