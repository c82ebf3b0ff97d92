#!/usr/bin/env python3
"""Trains on several hosts that are network and process namespaces of this machine: what they have in common is a
network between them, each with an address of its own.

usage: check_hosts.py PROGRAM      (as root, on Linux)

Hosts x ranks: 2 x 2 and 4 x 1, under FSDP2 and HSDP, started by torchrun's variables and by SLURM's. Held against one
process: the losses. Held against the plan: the bytes that a host sends the others in a step, by the counters of its
network interface, as the difference of a long run and a short one. And where a rank is killed: what the others say,
and how soon. Exit status 1 when anything is wrong, 77 where there may be no namespaces.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = str(ROOT / "scripts" / "bench" / "qwen3_shape.yaml")
BATCH = 8
LENGTH = 32
SHORT, LONG = 3, 11
NUM_REPLICAS = 2  # under HSDP
SECRET = f"check_hosts {os.getpid()}"
NETWORK = "10.77.0"
PORT = 29431


def require(holds, text):
    if not holds:
        sys.exit(f"check_hosts.py: {text}")


def call(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


class Hosts:
    """Network namespaces on one bridge, of which each rank's process gets its host's, with a name and numbers of
    processes of its own."""

    def __init__(self, count):
        self.names = [f"amhost{os.getpid()}x{i}" for i in range(count)]
        self.switch = f"amswitch{os.getpid()}"

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        self.add(self.switch)
        call("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", self.switch, "link", "set", "br0", "up")
        for i, name in enumerate(self.names):
            self.add(name)
            call("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns",
                 self.switch)
            call("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "br0", "up")
            call("ip", "-n", name, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
            call("ip", "-n", name, "link", "set", "eth0", "up")

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    @staticmethod
    def add(name):
        call("ip", "netns", "add", name)
        call("ip", "-n", name, "link", "set", "lo", "up")

    @staticmethod
    def address(host):
        return f"{NETWORK}.{host + 1}"

    def bytes_sent(self, host):
        return int(call("ip", "netns", "exec", self.names[host], "cat", "/sys/class/net/eth0/statistics/tx_bytes").stdout)

    def start(self, host, commands, log):
        """Starts commands with their environments as the processes of a host, which ends when they have."""
        script = [f"hostname node{host}"]
        for command, environment in commands:
            words = " ".join(f"'{word}'" for word in command)
            assignments = " ".join(f"{name}='{value}'" for name, value in environment.items())
            script.append(f"env {assignments} {words} & pids+=($!)")
        script.append('status=0; for pid in "${pids[@]}"; do wait "$pid" || status=$?; done; exit "$status"')
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], "unshare", "--uts", "--pid", "--fork",
                                 "--kill-child", "--mount-proc", "bash", "-c", "\n".join(script)],
                                stdout=log, stderr=subprocess.STDOUT)


def torchrun_variables(rank, num_hosts, on_host):
    return {"RANK": rank, "WORLD_SIZE": num_hosts * on_host, "LOCAL_RANK": rank % on_host, "LOCAL_WORLD_SIZE": on_host,
            "GROUP_RANK": rank // on_host, "MASTER_ADDR": Hosts.address(0), "MASTER_PORT": PORT}


def slurm_variables(rank, num_hosts, on_host):
    return {"SLURM_JOB_ID": 4711, "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_NTASKS": num_hosts * on_host,
            "SLURM_STEP_NUM_TASKS": num_hosts * on_host, "SLURM_LOCALID": rank % on_host, "SLURM_NODEID": rank // on_host,
            "SLURM_STEP_TASKS_PER_NODE": f"{on_host}(x{num_hosts})", "SLURM_STEP_NODELIST": f"node[0-{num_hosts - 1}]",
            "MASTER_ADDR": Hosts.address(0)}


LAUNCHERS = {"torchrun": torchrun_variables, "SLURM": slurm_variables}


def options_of(strategy, num_ranks, steps):
    options = [f"--step_scheduler.max_steps={steps}", f"--step_scheduler.global_batch_size={BATCH}",
               f"--step_scheduler.local_batch_size={BATCH // num_ranks}", f"--dataset.batch_size={BATCH // num_ranks}",
               f"--dataset.seq_len={LENGTH}", "--distributed.strategy=fsdp2",
               "--distributed.mp_policy.param_dtype=float32", "--distributed.mp_policy.reduce_dtype=float32",
               "--distributed.mp_policy._target_=torch.distributed.fsdp.MixedPrecisionPolicy"]
    if strategy == "hsdp":
        options.append(f"--distributed.dp_replicate_size={NUM_REPLICAS}")
    return options


def losses_of(folder):
    return [json.loads(line)["loss"] for line in (pathlib.Path(folder) / "training.jsonl").read_text().splitlines()]


def train(program, hosts, on_host, strategy, launcher, steps, while_running=None):
    """The losses, and the bytes that each host has sent."""
    num_hosts = len(hosts.names)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        before = [hosts.bytes_sent(host) for host in range(num_hosts)]
        logs, processes = [], []
        for host in range(num_hosts):
            commands = []
            for rank in range(host * on_host, (host + 1) * on_host):
                environment = {**LAUNCHERS[launcher](rank, num_hosts, on_host), "GLOO_SOCKET_IFNAME": "eth0",
                               "OMP_NUM_THREADS": 1, "AUTOMODEL_RUN_SECRET": SECRET}
                options = options_of(strategy, num_hosts * on_host, steps)
                commands.append(([program, "run", RECIPE, *options, f"--checkpoint.checkpoint_dir={folder}"], environment))
            logs.append(stack.enter_context(open(pathlib.Path(folder) / f"host{host}.log", "w+")))
            processes.append(hosts.start(host, commands, logs[-1]))
            stack.callback(processes[-1].kill)
        if while_running:
            while_running(processes, pathlib.Path(folder))
        statuses = [process.wait(timeout=240) for process in processes]
        texts = []
        for log in logs:
            log.seek(0)
            texts.append(log.read())
        if while_running:
            return statuses, texts
        require(not any(statuses), f"{num_hosts} x {on_host} {strategy} by {launcher}: {statuses}\n" + "\n".join(texts))
        return losses_of(folder), [hosts.bytes_sent(host) - sent for host, sent in enumerate(before)]


def planned(program, strategy, num_hosts, on_host):
    """The bytes that a host must send others in a step: each number of a gather or a sum goes to a host once."""
    num_ranks = num_hosts * on_host
    output = call(program, "plan", RECIPE, f"--world-size={num_ranks}", "--json",
                  *options_of(strategy, num_ranks, SHORT)).stdout
    step = json.loads(output)["collectives_of_a_step"]
    num_shards = num_ranks // (NUM_REPLICAS if strategy == "hsdp" else 1)
    hosts_of_shards = max(1, num_shards // on_host)
    sent = (step["gathered_bytes"] + step["reduced_bytes"]) * (hosts_of_shards - 1) / hosts_of_shards
    if strategy == "hsdp":  # a sum is sent in parts, and the parts' results are sent back
        sent += on_host * step["replica_reduced_bytes"] * 2 * (NUM_REPLICAS - 1) / NUM_REPLICAS
    return sent


def kill_a_rank(program, hosts, on_host):
    """What the ranks of other hosts print when the last rank is killed, and after how many seconds all have ended."""
    killed_at = []

    def kill_last(processes, folder):
        deadline = time.monotonic() + 120
        while not (folder / "training.jsonl").exists() or len((folder / "training.jsonl").read_text().splitlines()) < 2:
            require(time.monotonic() < deadline, "no step in two minutes")
            require(all(process.poll() is None for process in processes), "a host's ranks ended before the second step")
            time.sleep(0.05)
        last = {f"RANK={len(hosts.names) * on_host - 1}".encode(), f"AUTOMODEL_RUN_SECRET={SECRET}".encode()}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_last = last <= set((process / "environ").read_bytes().split(b"\0"))
                if is_last and (process / "cmdline").read_bytes().startswith(program.encode()):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed_at.append(time.monotonic())
        require(killed_at, "the last rank was not found")

    _, texts = train(program, hosts, on_host, "fsdp2", "torchrun", 100000, kill_last)
    return texts[:-1], time.monotonic() - killed_at[0]


def may_have_hosts():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        with Hosts(1) as hosts, open(os.devnull, "w") as log:
            return hosts.start(0, [(["true"], {})], log).wait() == 0
    except subprocess.CalledProcessError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.program).resolve())
    if not may_have_hosts():
        print("check_hosts.py: there may be no namespaces here")
        sys.exit(77)
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        call(program, "run", RECIPE, *options_of("fsdp2", 1, LONG), f"--checkpoint.checkpoint_dir={folder}")
        expected = losses_of(folder)
    for num_hosts, on_host in ((2, 2), (4, 1)):
        with Hosts(num_hosts) as hosts:
            for strategy in ("fsdp2", "hsdp"):
                expected_bytes = planned(program, strategy, num_hosts, on_host)
                for launcher in LAUNCHERS:
                    _, few = train(program, hosts, on_host, strategy, launcher, SHORT)
                    losses, many = train(program, hosts, on_host, strategy, launcher, LONG)
                    apart = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
                    sent = [(b - a) / (LONG - SHORT) for a, b in zip(few, many)]
                    print(f"{num_hosts} hosts x {on_host}, {strategy}, by {launcher}: losses {apart:.1e} apart, a step "
                          f"sends {min(sent) / 1e6:.2f} to {max(sent) / 1e6:.2f} MB from a host, "
                          f"{expected_bytes / 1e6:.2f} by the plan", flush=True)
                    require(apart < 1e-5, "the losses are not those of one process")
                    require(all(0.99 <= one / expected_bytes <= 1.05 for one in sent), "the bytes are not the plan's")
            texts, seconds = kill_a_rank(program, hosts, on_host)
            last = num_hosts * on_host - 1
            print(f"{num_hosts} hosts x {on_host}, rank {last} killed: all ended in {seconds:.1f} s", flush=True)
            require(all(f"rank {last} vanished" in text for text in texts), "no word of the killed rank:\n" + "\n".join(texts))
            require(seconds < 15, "a killed rank was noticed late")


if __name__ == "__main__":
    main()
