"""nginx with two workers under wrk; it reloads its configuration meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request

from masu.messages import Problem

from .harness import Program, Run, digest, free_port

SECONDS = 5

CONFIGURATION = """
{user}
worker_processes 2;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  gzip on; gzip_types text/plain; gzip_min_length 100;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/www;
    location /proxied/ {{ proxy_pass http://127.0.0.1:{port}/; proxy_buffers 8 16k; }}
    location /sub/ {{ sub_filter line LINE; sub_filter_once off; sub_filter_types text/plain; alias {folder}/www/; }}
  }}
}}
"""

PAGES = {"small.txt": 20, "middle.txt": 2_000, "large.txt": 40_000}
PATHS = [f"{place}{page}" for place in ("", "proxied/", "sub/") for page in PAGES]


def fetch(port: int, path: str, *, gzip: bool) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}")
    if gzip:
        request.add_header("Accept-Encoding", "gzip")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def load(run: Run, port: int, path: str, master: int) -> None:
    words = ("wrk", "-t", "2", "-c", "40", "-d", f"{SECONDS}s", "-H", "Accept-Encoding: gzip",
             f"http://127.0.0.1:{port}/{path}")  # fmt: skip
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as wrk:
        try:
            time.sleep(SECONDS / 2)
            os.kill(master, signal.SIGHUP)
            output, _ = wrk.communicate(timeout=60)
        finally:
            wrk.kill()
    bad = [line.strip() for line in output.splitlines() if "Non-2xx" in line or "Socket errors: connect" in line]
    if wrk.returncode or "Requests/sec" not in output or any("Non-2xx" in line for line in bad):
        raise Problem(f"wrk on /{path}: {output[-400:]}")
    run.record(f"wrk on /{path}", "all answers good")


def run_nginx(run: Run) -> None:
    port = free_port()
    www = run.folder / "www"
    www.mkdir()
    for name, lines in PAGES.items():
        (www / name).write_text("".join(f"line {i} {digest(str(i))}\n" for i in range(lines)))
    user = "" if os.geteuid() else "user root;"
    (run.folder / "nginx.conf").write_text(CONFIGURATION.format(folder=run.folder, port=port, user=user))
    with run.server("nginx", "-p", run.folder, "-c", run.folder / "nginx.conf", "-e", run.folder / "error.log",
                    stop=signal.SIGQUIT) as server:  # fmt: skip
        server.wait_port(port)
        with run.timed():
            for path in ("middle.txt", "proxied/middle.txt", "sub/middle.txt"):
                load(run, port, path, server.pid)
            for path in PATHS:
                for gzip in (False, True):
                    run.record_digest(f"/{path}{' compressed' if gzip else ''}", fetch(port, path, gzip=gzip))


PROGRAMS = (
    Program(
        "nginx",
        "nginx under wrk: files, gzip, proxy, substitution, reload under load; pages compared",
        packages=("nginx", "wrk"),
        probe=("nginx", "-v"),
        run=run_nginx,
    ),
)
