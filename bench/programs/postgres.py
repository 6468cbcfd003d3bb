"""PostgreSQL in a folder of its own, under pgbench and some heavier queries."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from masu.messages import Problem

from .harness import Program, Run, as_user, empty_folder, free_port, quietly

CLIENTS, TRANSACTIONS, SCALE = 8, 500, 5

QUERIES = {
    "balances": """select sum(abalance), (select sum(bbalance) from pgbench_branches),
        (select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history) from pgbench_accounts""",
    "transactions": "select count(*) from pgbench_history",
    "sort": "select md5(string_agg(md5(i::text || 'x'), ',' order by md5(i::text))) from generate_series(1, 200000) i",
    "hash join": """select count(*), sum(a.aid::bigint * b.aid) from pgbench_accounts a
        join pgbench_accounts b on a.aid = 500001 - b.aid""",
    "groups": """select md5(string_agg(t::text, ';' order by k)) from
        (select aid % 5003 k, count(*) n, array_agg(aid order by aid) l from pgbench_accounts group by 1) t""",
    "json and regular expressions": """select md5(string_agg(regexp_replace(j::text, '[aeiou]', '*', 'g'), '')) from
        (select jsonb_build_object('i', i, 'words', string_to_array(repeat('one two ', i % 20), ' ')) j
         from generate_series(1, 20000) i) t""",
}


def binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise Problem("no /usr/lib/postgresql/*/bin/postgres")
    return found[-1].parent


def run_postgres(run: Run) -> None:
    user = as_user("postgres")
    port = free_port()
    data = empty_folder(run.folder / "data")
    if user:
        for path in (run.folder, data):
            shutil.chown(path, "postgres", "postgres")
    connect = ("-h", "127.0.0.1", "-p", str(port), "-U", "tester")
    run.command(
        *user, binaries() / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
    )
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "max_parallel_workers_per_gather": 2,
        "work_mem": "16MB",
        "default_statistics_target": 10,
    }
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with run.server(
        *user, binaries() / "postgres", "-D", data, "-p", str(port), *options, stop=signal.SIGINT
    ) as server:
        server.wait_port(port)
        server.wait_for(lambda: "ready to accept connections" in server.log(), "it accepts connections")
        with run.timed():
            quietly("pgbench", *connect, "-i", "-q", "-s", str(SCALE), "postgres")
            quietly(
                "pgbench",
                *connect,
                "-c",
                str(CLIENTS),
                "-j",
                "2",
                "-t",
                str(TRANSACTIONS),
                "--random-seed=1",
                "postgres",
            )
            for name, query in QUERIES.items():
                run.record(name, quietly("psql", *connect, "-XAtq", "-c", query, "postgres").strip())


PROGRAMS = (
    Program(
        "postgres",
        "PostgreSQL under pgbench, then sorts, joins, groups, jsonb; answers compared",
        packages=("postgresql", "postgresql-contrib"),
        probe=("sh", "-c", "exec /usr/lib/postgresql/*/bin/postgres --version"),
        run=run_postgres,
    ),
)
