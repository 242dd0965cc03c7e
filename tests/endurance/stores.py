"""A service that is killed, stopped or moved in time, and a database that goes away under it."""

import os
import shlex
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import Trial, scenario
from service import Enrolling, device, postgresql

GROUP = "A service and its database"
ONCE = "what it acknowledged is there, whole and once; what it did not is there whole or not at all"


def _kill(trial: Trial, url: str | None = None) -> None:
    with device(trial.folder, url) as used:
        load = Enrolling(used)
        for _ in range(trial.size(10)):
            with load:
                time.sleep(trial.dice.uniform(0.2, 1.5))
                used.service.end(signal.SIGKILL)
            used.service.begin()
            trial.count("kills")
            trial.count("requests lost and sent again", load.settle())
        used.classify(1)
        trial.check(used.service.end() == 0, "stopped by SIGTERM at last, it ended with an error")
    _report(trial, load)


def _report(trial: Trial, load: Enrolling) -> None:
    trial.figures["examples acknowledged"] = load.acknowledged.total()
    trial.problems += load.problems
    trial.check(load.acknowledged.total() > 0, "nothing was enrolled")


@scenario(GROUP, "on SQLite it is killed with -9 in the middle of enrolments, and started again", ONCE)
def service_killed_on_sqlite(trial: Trial) -> None:
    _kill(trial)


@scenario(GROUP, "the same on PostgreSQL", ONCE)
def service_killed_on_postgresql(trial: Trial) -> None:
    with postgresql() as server:
        _kill(trial, server.get_uri("store", driver="psycopg"))


@scenario(
    GROUP,
    "every process of PostgreSQL is killed with -9 in the middle of enrolments, and it is started again",
    "meanwhile all is answered, by 503; afterwards " + ONCE,
)
def postgresql_killed(trial: Trial) -> None:
    with postgresql() as server, device(trial.folder, server.get_uri("store", driver="psycopg")) as used:
        load = Enrolling(used)
        for _ in range(trial.size(3)):
            before = load.answers[503]
            with load:
                time.sleep(trial.dice.uniform(0.5, 1.5))
                start_again = _killed(server)
                time.sleep(1)
                trial.check(used.service.health("live") == 200, "not alive without a database")
                trial.check(used.service.health("ready") == 503, "ready without a database")
                start_again()
                began, done = time.monotonic(), load.acknowledged.total()
                while load.acknowledged.total() == done and time.monotonic() - began < 30:
                    time.sleep(0.01)
                trial.most("s until it enrolled again, at most", time.monotonic() - began)
                time.sleep(0.5)
            trial.count("kills")
            trial.check(load.answers[503] > before, "nothing was asked without a database")
            load.settle()
        trial.figures["answers of 503"] = load.answers[503]
    _report(trial, load)


def _killed(server: Any) -> Any:
    """Kill a PostgreSQL, all of it. -> what starts it again."""
    data = Path(server.pgdata)
    words = shlex.split((data / "postmaster.opts").read_text())[1:]
    parent = int((data / "postmaster.pid").read_text().split()[0])
    program = Path(f"/proc/{parent}/exe").resolve().with_name("pg_ctl")
    as_owner: dict[str, Any] = {} if os.geteuid() else {"user": data.owner()}
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for process in [parent, *map(int, children)]:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def start() -> None:
        log = data.parent / "log"
        log.touch()
        log.chmod(0o666)
        control = [str(program), "-D", str(data), "-w", "-l", str(log), "-o", shlex.join(words), "start"]
        for _ in range(20):  # until the last of its processes is gone
            if subprocess.run(control, capture_output=True, check=False, **as_owner).returncode == 0:
                return
            time.sleep(0.5)
        raise RuntimeError(log.read_text()[-2000:])

    return start


@scenario(
    GROUP,
    "SIGTERM stops it in the middle of enrolments by 16 clients",
    "every request that it began is answered, none without an answer is executed, it ends with 0",
)
def service_stopped_under_load(trial: Trial) -> None:
    with device(trial.folder) as used:
        load = Enrolling(used, threads=16)
        for _ in range(trial.size(10)):
            with load:
                time.sleep(trial.dice.uniform(0.5, 1.5))
                began = time.monotonic()
                trial.check(used.service.end() == 0, "it ended with an error")
                trial.most("s to stop, at most", time.monotonic() - began)
            used.service.begin()
            trial.count("stops")
            trial.count("requests not taken", load.settle(executed=False))
    _report(trial, load)


@scenario(
    GROUP,
    "the disk of its SQLite file is full (a limit on the size of files stands for it)",
    "what was acknowledged stays, the rest is answered by 503, and with room again it goes in",
)
def disk_full(trial: Trial) -> None:
    with device(trial.folder, most_bytes=400_000) as used:
        acknowledged, status = 0, 201
        for number in range(0, 6400, 32):
            reply = used.enrol("a", *range(number, number + 32))
            status = reply.status_code
            if status != 201:
                break
            acknowledged += sum(each["new"] for each in reply.json()["classes"])
        trial.check(status == 503, f"a full disk was answered by {status}")
        trial.check(used.service.health("live") == 200, "not alive")
        used.service.end()
        used.service.most_bytes = None
        used.service.begin()
        trial.check(used.examples() == {"a": acknowledged}, f"{used.examples()} there of {acknowledged}")
        again = used.enrol("a", *range(number, number + 32)).status_code
        trial.check(again == 201, f"with room again: {again}")
        trial.figures["examples acknowledged before"] = acknowledged


@scenario(
    GROUP,
    "the file system of its SQLite file becomes read-only",
    "it answers questions and refuses enrolments by 503, or says at its start what to do; nothing is lost",
)
def store_read_only(trial: Trial) -> None:
    store = trial.folder / "store"
    store.mkdir()
    with device(trial.folder, f"sqlite:///{store}/store.db") as used:
        used.enrol("a", 1, 2).raise_for_status()
        for how in (signal.SIGTERM, signal.SIGKILL):  # without and with a log of SQLite beside the file
            used.service.end(how)
            used.service.locked = store
            try:
                used.service.begin()
            except RuntimeError as said:
                trial.check("cannot be written" in str(said) and "Traceback" not in str(said), str(said))
                trial.count("starts refused")
            else:
                refused = used.enrol("a", 3)
                trial.check(refused.status_code == 503, f"an enrolment: {refused.status_code} {refused.text}")
                trial.check(used.examples() == {"a": 2}, f"meanwhile {used.examples()}")
                used.classify(5)
                used.service.end()
                trial.count("starts that answer questions")
            used.service.locked = None
            used.service.begin()
            trial.check(used.examples() == {"a": 2}, f"afterwards {used.examples()}")
