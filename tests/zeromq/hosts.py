"""A pair of hosts, each with a network for its clients, and with a link between them, which can be cut.

Hosts are network namespaces where the test may make them (Linux, root, iproute2). Elsewhere they are this machine, and cables
stand for the networks.
"""

import os
import shutil
import subprocess

from tests.zeromq.proxy import Cable, free_endpoint

PORT, LINK_PORT = 5555, 5003


def hosts(ends):
    """Two hosts, which end with `ends`."""
    return Namespaces(ends) if may_make_namespaces() else Cables(ends)


def may_make_namespaces():
    if shutil.which("ip") is None:
        return False
    name = f"xump-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], stderr=subprocess.DEVNULL, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    return made


class Namespaces:
    """Two network namespaces. This process, with the clients, is in none of them, and has an address for each."""

    def __init__(self, ends):
        number = os.getpid()
        names = [f"xump-{number}-{role}" for role in ("primary", "backup")]
        # Eight addresses for each process: two networks of four.
        block = f"10.{64 + (number >> 13 & 127)}.{number >> 5 & 255}"
        first = (number & 31) * 8
        self._names, self._wires = names, [f"xump{number % 10_000_000}p", f"xump{number % 10_000_000}b"]
        self.fronts = [f"tcp://{block}.{first + 4 * at + 2}:{PORT}" for at in (0, 1)]
        self.links = [f"tcp://192.168.77.{at + 1}:{LINK_PORT}" for at in (0, 1)]
        self.peers = self.links[::-1]
        for name in names:
            ends.callback(subprocess.run, ["ip", "netns", "delete", name], check=False)
        ends.callback(self._processes_end)
        self._processes = []
        self._ip(*(f"netns add {name}" for name in names))
        for at, (name, wire) in enumerate(zip(names, self._wires, strict=True)):
            self._ip(
                f"link add {wire} type veth peer name clients netns {name}", f"link set {wire} up",
                f"address add {block}.{first + 4 * at + 1}/30 dev {wire}")
        self._ip(f"-n {names[0]} link add peer type veth peer name peer netns {names[1]}")
        for at, name in enumerate(names):
            for line in ("link set lo up", f"address add {block}.{first + 4 * at + 2}/30 dev clients", "link set clients up",
                         f"address add 192.168.77.{at + 1}/30 dev peer", "link set peer up"):
                self._ip(f"-n {name} {line}")

    @staticmethod
    def _ip(*lines):
        for line in lines:
            subprocess.run(["ip", *line.split()], check=True)

    def _processes_end(self):
        for process in self._processes:
            process.kill()
            process.communicate()

    def start(self, at, words):
        """Start a program on a host."""
        self._processes.append(subprocess.Popen(
            ["ip", "netns", "exec", self._names[at], *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return self._processes[-1]

    def cut_link(self):
        """The hosts do not hear of each other any more."""
        self._ip(f"-n {self._names[0]} link set peer down")

    def cut_off(self, at):
        """Clients do not reach a host any more."""
        self._ip(f"link set {self._wires[at]} down")


class Cables:
    """Two programs on this machine."""

    def __init__(self, ends):
        self.own, self.links = ([free_endpoint(), free_endpoint()] for _ in range(2))
        self._fronts, self._peers = [[Cable(to) for to in way] for way in (self.own, self.links[::-1])]
        for cable in (*self._fronts, *self._peers):
            ends.callback(cable.close)
        self.fronts, self.peers = [[cable.endpoint for cable in cables] for cables in (self._fronts, self._peers)]
        self._ends = ends

    def start(self, at, words):
        """Start a program."""
        words = [self.own[at] if word == self.fronts[at] else word for word in words]
        process = self._ends.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        self._ends.callback(process.kill)
        return process

    def cut_link(self):
        """The programs do not hear of each other any more."""
        for cable in self._peers:
            cable.cut()

    def cut_off(self, at):
        """Clients do not reach a program any more."""
        self._fronts[at].cut()
