"""[REQUESTS]: a redis server on this process's allocator, and its own benchmark of so many (200,000) of each kind on the system's.

Debian links its redis-server with jemalloc: where no allocator is preloaded, the C library is, so that the server
runs on the system's. Prints one JSON object: requests per second, the server's peak memory, and a digest of what the
server answers when it is asked for a thousand values that it was given."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.sendall(b"PING\r\n")
            return s.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def values():
    return [(b"value_of_%d_" % i * 20)[:200] for i in range(1000)]


def read_back(port):
    """A digest of the answers: after the measured part, so that the server's memory is as the load left it."""
    with socket.create_connection(("127.0.0.1", port), 10) as s, s.makefile("rwb") as stream:
        for i, value in enumerate(values()):
            stream.write(b"SET known:%d %s\r\n" % (i, value))
        stream.flush()
        digest = hashlib.sha256()
        for _ in values():
            digest.update(stream.readline())
        for i in range(len(values())):
            stream.write(b"GET known:%d\r\n" % i)
        stream.flush()
        for _ in values():
            digest.update(stream.readline() + stream.readline())
    return digest.hexdigest()[:16]


def main():
    requests = sys.argv[1] if len(sys.argv) > 1 else "200000"
    port = free_port()
    on_ours = {**os.environ, "LD_PRELOAD": os.environ.get("LD_PRELOAD", "libc.so.6")}
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "GLIBC_TUNABLES")}
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            ["redis-server", "--port", str(port), "--save", "", "--dir", folder], env=on_ours, stdout=subprocess.DEVNULL
        )
        try:
            for _ in range(500):
                if answers(port):
                    break
                time.sleep(0.01)
            words = ["redis-benchmark", "-p", str(port), "-q", "--csv", "-P", "16", "-c", "20", "-n", requests]
            words += ["-r", "100000", "-d", "200", "-t", "set,get,lpush,hset"]
            rows = subprocess.run(words, env=clean, capture_output=True, text=True, check=True).stdout.splitlines()
            rates = [float(row.split(",")[1].strip('"')) for row in rows[1:]]
            status = open(f"/proc/{server.pid}/status").read()
            digest = read_back(port)
        finally:
            server.terminate()
            server.wait()
    peak = int(status.split("VmHWM:")[1].split()[0])
    rate = len(rates) / sum(1 / r for r in rates)
    print(json.dumps({"requests_per_s": rate, "server_peak_kib": peak, "digest": digest}))


if __name__ == "__main__":
    main()
