"""Starts the iSCSI targets that the conformance suite is run against: rbdgate and tgt, each on files or on RBD images.

Every kind of LUN that some test of the suite needs is served at once, behind a target name of its own, because the
suite resets targets. The LUNs are thin and SIZE large; everything on them is overwritten.
"""

import os
import pathlib
import secrets
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
SIZE_MIB = 256
# What makes each kind special: lines of rbdgate's configuration, and tgt's options and parameters.
KINDS = {
    "disk": ("", [], ""),
    "4kn": ("block_size: 4096", ["--blocksize", "4096"], ""),
    "removable": ("removable: true", [], "removable=1,"),
    "protected": ("read_only: true", [], "readonly=1,"),
    # Slow enough that what runs in the background can be watched. tgt has no such store.
    "slow": ("fault: { latency: 500ms }", [], ""),
}


class Trouble(Exception):
    """Something the person at the keyboard can do something about."""


def run(*command: object, **more) -> str:
    """Runs a command to its end and returns what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **more)
    if done.returncode:
        raise Trouble(f"{' '.join(words)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def free_port(below: int = 65536) -> int:
    """A loopback port that nothing listens on now. tgt's control number must stay below 32768."""
    for _ in range(1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", 0 if below > 32768 else 20000 + secrets.randbelow(12000)))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise Trouble("no free port")


def sparse(path: pathlib.Path) -> pathlib.Path:
    """A sparse file for a disk, made if it is not there."""
    with open(path, "ab") as file:
        file.truncate(SIZE_MIB << 20)
    return path


def answers(url: str) -> bool:
    """Whether the target lets a session in and knows its LUN."""
    try:
        return subprocess.run(["iscsi-inq", url], capture_output=True, timeout=20, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class Images:
    """Names for RBD images of this run, gone at the end."""

    def __init__(self, conf: pathlib.Path, prefix: str) -> None:
        self.conf = conf
        self.names = {kind: f"{prefix}-{os.getpid()}-{kind}" for kind in KINDS}
        for name in self.names.values():
            run("rbd", "-c", conf, "create", "--size", f"{SIZE_MIB}M", f"rbd/{name}")

    def __enter__(self) -> "Images":
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names.values():
            subprocess.run(["rbd", "-c", str(self.conf), "rm", "--no-progress", f"rbd/{name}"],
                           capture_output=True, check=False)


class Rbdgate:
    """One gateway that serves every kind."""

    restartable = False

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path, images: Images | None) -> None:
        self.folder, port = folder, free_port()
        # A test sleeps for a minute and answers no ping meanwhile; its session has to outlive that.
        lines = [f'listen: ["127.0.0.1:{port}"]', f"admin: {{ control: {folder}/control.sock }}",
                 "limits: { nop_interval: 2m }", "disks:"]
        for kind, (special, _, _) in KINDS.items():
            if images:
                store = f"rbd: {{ pool: rbd, image: {images.names[kind]}, conf: {images.conf} }}"
            else:
                store = f"file: {{ path: {sparse(folder / f'{kind}.img')} }}"
            lines += [f"  {kind}:", f"    {store}"] + ([f"    {special}"] if special else [])
        lines.append("targets:")
        self.urls = {}
        for kind in KINDS:
            name = f"iqn.2026-01.io.rbdgate:{kind}"
            lines += [f"  - {{ name: '{name}', luns: {{ 0: {kind} }}, open: true }}"]
            self.urls[kind] = f"iscsi://127.0.0.1:{port}/{name}/0"
        (folder / "rbdgate.yaml").write_text("\n".join(lines) + "\n")
        self.log = folder / "rbdgate.log"
        with open(self.log, "w") as out:
            self.process = subprocess.Popen([binary, "serve", "-c", folder / "rbdgate.yaml"],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        deadline = time.monotonic() + 60
        while not all(answers(url) for url in self.urls.values()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Trouble(f"rbdgate did not come up: {self.log.read_text().strip()}")
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Tgt:
    """Debian's tgt: a process for each kind, so that one that hangs can be started anew without the others."""

    restartable = True

    def __init__(self, folder: pathlib.Path, images: Images | None) -> None:
        self.folder, self.images = folder, images
        self.urls: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen] = {}
        try:
            for kind in KINDS:
                self.start(kind)
        except Trouble:
            self.stop()
            raise

    def start(self, kind: str) -> None:
        port, control = free_port(), free_port(below=32768)
        environment = os.environ | {"TGT_IPC_SOCKET": str(self.folder / f"{kind}.{control}")}
        with open(self.folder / f"tgt-{kind}.log", "a") as log:
            self.processes[kind] = subprocess.Popen(
                ["tgtd", "-f", "-C", str(control), "-t", "4", "--iscsi", f"portal=127.0.0.1:{port}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

        def admin(*words: object) -> None:
            run("tgtadm", "-C", control, "--lld", "iscsi", *words, env=environment)

        for attempt in range(50):
            try:
                admin("--mode", "sys", "--op", "show")
                break
            except Trouble:
                if attempt == 49:
                    raise
                time.sleep(0.1)
        if self.images:
            store = ["--bstype", "rbd", "--bsopts", f"conf={self.images.conf};id=admin", "-b", f"rbd/{self.images.names[kind]}"]
        else:
            store = ["--bstype", "rdwr", "-b", str(sparse(self.folder / f"{kind}.img"))]
        _, options, parameters = KINDS[kind]
        name = f"iqn.2026-01.local.conformance:{kind}"
        admin("--mode", "target", "--op", "new", "--tid", 1, "-T", name)
        admin("--mode", "logicalunit", "--op", "new", "--tid", 1, "--lun", 1, *store, *options)
        admin("--mode", "logicalunit", "--op", "update", "--tid", 1, "--lun", 1,
              "--params", f"{parameters}thin_provisioning=1")
        admin("--mode", "target", "--op", "bind", "--tid", 1, "-I", "ALL")
        self.urls[kind] = f"iscsi://127.0.0.1:{port}/{name}/1"

    def restart(self, kind: str) -> None:
        self.end(self.processes[kind])
        self.start(kind)

    @staticmethod
    def end(process: subprocess.Popen) -> None:
        process.kill()  # it takes no notice of SIGTERM while it has a target
        process.wait()

    def stop(self) -> None:
        for process in self.processes.values():
            self.end(process)
