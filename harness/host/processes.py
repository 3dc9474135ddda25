"""The processes of this host: their CPU time with that of their descendants, and which of them listens on a port.

Linux's /proc (man 5 proc). A process of another user may hide its sockets: then who listens is unknown.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

_PROC = Path("/proc")
_ESTABLISHED, _LISTENS = "01", "0A"  # states of a socket
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STAT_BYTES = 4096  # a line of 52 numbers and a name of at most 64 bytes is shorter
_BOOT = "btime "  # the line of /proc/stat with the Unix time, in s
# Who starts the ranks of a parallel program, or our Triton with a front end beside it: one alone of these may listen.
_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "bench-launcher")
# Who listens in the place of a server that may be anywhere: ports of containers, and tunnels.
_FORWARDERS = (
    *("bench-proxy", "docker-proxy", "rootlessport", "rootlesskit", "pasta", "pasta.avx2", "slirp4netns", "gvproxy"),
    *("ssh", "sshd", "socat", "kubectl"),
)
_FRONT_END = "bench-openai"  # the same, unless it was started beside its server


@dataclass(frozen=True, slots=True)
class Process:
    """``cpu_ns`` is its CPU time and that of its children that it has waited for, in all since it began, which was
    ``began_ns`` after the machine.
    """

    name: str
    parent: int
    cpu_ns: int
    began_ns: int


def read_processes(proc: Path = _PROC) -> dict[int, Process]:
    """Every process that can be seen, by its id."""
    found: dict[int, Process] = {}
    for name in filter(str.isdigit, os.listdir(proc)):
        try:
            found[int(name)] = _parse(_read(f"{proc}/{name}/stat").decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return found


def _read(path: str) -> bytes:
    """A file of /proc at once; ``open`` costs more than the kernel, and a machine has hundreds of processes."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _STAT_BYTES)
    finally:
        os.close(file)


def _parse(stat: str) -> Process:
    """A name is in parentheses, and may contain any character."""
    before, _, after = stat.rpartition(")")
    words = after.split()
    cpu_ns, began_ns = sum(map(int, words[11:15])) * _NS_PER_TICK, int(words[19]) * _NS_PER_TICK
    return Process(before.partition("(")[2], int(words[1]), cpu_ns, began_ns)


def began_at(pids: Collection[int], proc: Path = _PROC) -> float | None:
    """When the first of these processes began, as Unix time in s, to about 1 s; None where none of them can be seen."""
    try:
        lines = (proc / "stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    boot_s = next((int(line.removeprefix(_BOOT)) for line in lines if line.startswith(_BOOT)), None)
    processes = read_processes(proc)
    known_ns = [processes[pid].began_ns for pid in pids if pid in processes]
    return None if boot_s is None or not known_ns else boot_s + min(known_ns) / 1e9


def tree_of(processes: Mapping[int, Process], roots: Collection[int]) -> frozenset[int]:
    """``roots`` and their descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    found: set[int] = set()
    waiting = [root for root in roots if root in processes]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children[pid]
    return frozenset(found)


def listeners(host: str, port: int, proc: Path = _PROC) -> frozenset[int] | None:
    """The processes that listen at ``host``:``port``, or the launcher of their ranks; None where that is no address of this
    host, or they cannot be known: others' sockets are hidden, and a forwarder stands for a server elsewhere.
    """
    addresses = _own_addresses(host, port)
    inodes = _listening_sockets(proc, addresses, port) if addresses else frozenset()
    sockets = frozenset(f"socket:[{inode}]" for inode in inodes)
    processes = read_processes(proc) if sockets else {}
    owners = {pid for pid in processes if _holds(f"{proc}/{pid}/fd", sockets)}
    if not owners or any(processes[pid].name in _FORWARDERS for pid in owners):
        return None
    roots = frozenset(_launcher_of(processes, pid) for pid in owners)
    return None if any(processes[root].name == _FRONT_END for root in roots) else roots


def called_by(roots: Collection[int], proc: Path = _PROC) -> frozenset[int]:
    """The processes of this host to which the trees of ``roots`` have opened TCP connections, and those that these call: the
    servers of a router. They are roots of further trees; none has this process in it. Empty where none can be known.
    """
    processes = read_processes(proc)
    found: frozenset[int] = frozenset()
    known = waiting = tree_of(processes, roots)
    while waiting:
        servers = (listeners(host, port, proc) or frozenset() for host, port in _calls(proc, waiting))
        called = frozenset().union(*servers) - known
        called = frozenset(pid for pid in called if os.getpid() not in tree_of(processes, [pid]))
        waiting = tree_of(processes, called) - known
        found, known = found | called, known | waiting
    return found


def _calls(proc: Path, pids: Collection[int]) -> frozenset[tuple[str, int]]:
    """The addresses and ports to which these processes have opened connections: those of sockets whose own port is none that
    is listened at.
    """
    sockets = _sockets(proc)
    listening = {each.port for each in sockets if each.state == _LISTENS}
    opened = {f"socket:[{each.inode}]": each for each in sockets if each.state == _ESTABLISHED and each.port not in listening}
    held = {link for pid in pids for link in _links(f"{proc}/{pid}/fd")}
    return frozenset((_text(opened[link].remote), opened[link].remote_port) for link in held & opened.keys())


def _own_addresses(host: str, port: int) -> frozenset[str]:
    """Those addresses of ``host`` that are this machine's own, packed, as hexadecimal digits."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    addresses = ((family, str(address[0])) for family, *_, address in found)
    return frozenset(ip_address(text.partition("%")[0]).packed.hex() for family, text in addresses if _is_own(family, text))


def _is_own(family: int, address: str) -> bool:
    """An address of another machine cannot be bound."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as own:
            own.bind((address, 0))
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Socket:
    """A TCP socket of this host that listens or is connected; addresses are as in /proc/net."""

    state: str
    local: str
    port: int
    remote: str
    remote_port: int
    inode: str


def _sockets(proc: Path) -> list[_Socket]:
    """Every TCP socket that listens or is connected; a busy host has many more that have ended."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] in (_ESTABLISHED, _LISTENS):
                (local, port), (remote, remote_port) = words[1].split(":"), words[2].split(":")
                found.append(_Socket(words[3], local, int(port, 16), remote, int(remote_port, 16), words[9]))
    return found


def _listening_sockets(proc: Path, addresses: frozenset[str], port: int) -> frozenset[str]:
    """The inodes of the sockets that listen at one of ``addresses``, or at every address."""
    at_port = (each for each in _sockets(proc) if each.state == _LISTENS and each.port == port)
    return frozenset(each.inode for each in at_port if _reaches(_packed(each.local), addresses))


def _text(written: str) -> str:
    """An address of /proc/net in its usual form; one of IPv4 that is mapped to IPv6 as one of IPv4."""
    address = ip_address(bytes.fromhex(_packed(written)))
    return str(getattr(address, "ipv4_mapped", None) or address)


def _packed(written: str) -> str:
    """An address of /proc/net, whose words of 32 bits are in the machine's order, as hexadecimal digits in network order."""
    words = (int(written[at : at + 8], 16) for at in range(0, len(written), 8))
    return b"".join(word.to_bytes(4, sys.byteorder) for word in words).hex()


def _reaches(local: str, addresses: frozenset[str]) -> bool:
    """Whether a socket bound to ``local`` takes connections to one of ``addresses``; IPv4 may come mapped to IPv6."""
    if not local.strip("0") or local in addresses:
        return True
    return local.startswith("0" * 20 + "ffff") and local[-8:] in addresses


def _holds(folder: str, sockets: frozenset[str]) -> bool:
    """Whether one of the files in ``folder`` is a link to one of ``sockets``."""
    return any(link in sockets for link in _links(folder))


def _links(folder: str) -> Iterator[str]:
    """What the files in ``folder`` are links to; none of a process of another user, or that has ended."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from filter(None, (_link(f"{folder}/{name}") for name in names))


def _link(path: str) -> str | None:
    """What a link points to; None where it was closed meanwhile."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def _launcher_of(processes: Mapping[int, Process], pid: int) -> int:
    while (parent := processes[pid].parent) in processes and processes[parent].name in _LAUNCHERS:
        pid = parent
    return pid
