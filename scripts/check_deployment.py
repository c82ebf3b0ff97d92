#!/usr/bin/env python3
"""Holds the SLURM and Kubernetes examples of packaging/ against the launcher: their variables are those that it reads, and
a tiny run started as they start it, on this machine, trains.

usage: check_deployment.py PROGRAM

The ranks of the indexed Job get the variables that the file gives them, with rank 0 on this machine; an `srun` that
starts its tasks here, with SLURM's variables, stands in for SLURM's. Exit status 1 when anything is wrong.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = str(ROOT / "recipes" / "smoke" / "mock_pretrain.yaml")
ONE_STEP = ["--step_scheduler.max_steps=1", "--step_scheduler.global_batch_size=16"]
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# Starts TASKS tasks here, which see what the tasks of a step on one machine see.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
export SLURM_STEP_ID=0 SLURM_NTASKS=$TASKS SLURM_STEP_NUM_TASKS=$TASKS SLURM_NODEID=0
export SLURM_STEP_TASKS_PER_NODE=$TASKS SLURM_STEP_NODELIST=localhost
pids=()
for ((task = 0; task < TASKS; task++)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" --step_scheduler.max_steps=1 --step_scheduler.global_batch_size=16 &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def require(holds, text):
    if not holds:
        sys.exit(f"check_deployment.py: {text}")


def known_variables():
    """The names that the launcher's README lists, and those of the hub."""
    text = (ROOT / "src" / "launcher" / "README.md").read_text()
    return set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", text)) | {"HF_HOME"}


def only(documents, kind):
    found = [document for document in documents if document["kind"] == kind]
    require(len(found) == 1, f"one {kind} is wanted, there are {len(found)}")
    return found[0]


def container_of(job):
    containers = job["spec"]["template"]["spec"]["containers"]
    require(len(containers) == 1, "one container a pod is wanted")
    return containers[0]


def check_environment(path, container):
    for variable in container["env"]:
        require(variable["name"] in known_variables(), f"{path}: nothing reads {variable['name']}")
        require(isinstance(variable.get("value", ""), str), f"{path}: {variable['name']} is no text")


def check_names(path, service, job):
    """What ties pods, service and variables together."""
    spec, name = job["spec"], job["metadata"]["name"]
    variables = {one["name"]: one for one in container_of(job)["env"]}
    world = variables["WORLD_SIZE"]["value"]
    subdomain = spec["template"]["spec"]["subdomain"]
    require(spec["completionMode"] == "Indexed", f"{path}: only indexed pods know their numbers")
    require(str(spec["completions"]) == str(spec["parallelism"]) == world, f"{path}: not all of {world} ranks run at once")
    require(service["metadata"]["name"] == subdomain, f"{path}: no service is called {subdomain}")
    require(service["spec"]["clusterIP"] == "None", f"{path}: the service gives no names to pods")
    require(service["spec"]["selector"] == {"job-name": name}, f"{path}: the service selects other pods")
    require(variables["MASTER_ADDR"]["value"] == f"{name}-0.{subdomain}", f"{path}: MASTER_ADDR is not rank 0")
    require(variables["RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == INDEX, f"{path}: RANK is not the pod's number")


def arguments_here(container, folder):
    """The container's arguments with this machine's paths."""
    arguments = [argument.replace("/recipe/recipe.yaml", RECIPE) for argument in container["args"]]
    return [argument.replace("=/work/", f"={folder}/") for argument in arguments] + ONE_STEP


def expect_trains(what, processes):
    said = [process.communicate(timeout=120)[0] for process in processes]
    ended = [process.returncode for process in processes]
    require(ended == [0] * len(ended), f"{what}: statuses {ended}\n" + "\n".join(said))
    require(re.search(rf"ranks: {WORLD[what]}\b", said[0]), f"{what}: not {WORLD[what]} ranks\n{said[0]}")
    require(" step 0 | epoch 0 | loss " in said[0], f"{what}: no step\n{said[0]}")
    print(f"check_deployment.py: {what}: {WORLD[what]} ranks train")


WORLD = {"job.yaml": 2, "indexed_job.yaml": 4, "one_node.sbatch": 2, "many_nodes.sbatch": 4}


def start(command, folder, variables):
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def check_kubernetes(program, folder):
    for name in ("job.yaml", "indexed_job.yaml"):
        documents = list(yaml.safe_load_all((ROOT / "packaging" / "kubernetes" / name).read_text()))
        job = only(documents, "Job")
        container = container_of(job)
        check_environment(name, container)
        command = [program, *arguments_here(container, folder)]
        if name == "job.yaml":
            expect_trains(name, [start(command, folder, {})])
            continue
        check_names(name, only(documents, "Service"), job)
        given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        given.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), AUTOMODEL_RUN_SECRET="of this run")
        ranks = range(int(given["WORLD_SIZE"]))
        expect_trains(name, [start(command, folder, {**given, "RANK": str(rank)}) for rank in ranks])


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def check_slurm(program, folder):
    tools = pathlib.Path(folder) / "tools"
    tools.mkdir()
    write_program(tools / "srun", SRUN)
    write_program(tools / "scontrol", f'#!/bin/sh\necho "$@" >>{folder}/scontrol\n')
    (tools / "automodel").symlink_to(program)
    variables = {"SLURM_JOB_ID": str(free_port()), "SLURM_CPUS_PER_TASK": "1", "RANKS": "2"}
    variables["PATH"] = f"{tools}:{os.environ['PATH']}"
    for name, tasks in (("one_node.sbatch", 1), ("many_nodes.sbatch", 4)):
        script = str(ROOT / "packaging" / "slurm" / name)
        variables["TASKS"] = str(tasks)
        expect_trains(name, [start(["bash", script, RECIPE], folder, variables)])
    log = pathlib.Path(folder) / "scontrol"
    require(not log.exists(), "a run that is done was queued again")
    for status, wanted in ((2, ""), (75, f"requeue {variables['SLURM_JOB_ID']}\n")):
        write_program(tools / "srun", f"#!/bin/sh\nexit {status}\n")
        for name in ("one_node.sbatch", "many_nodes.sbatch"):
            script = start(["bash", str(ROOT / "packaging" / "slurm" / name), RECIPE], folder, variables)
            said = script.communicate()[0]
            asked = log.read_text() if log.exists() else ""
            require(script.returncode == status and asked == wanted, f"{name}, status {status}: {asked}{said}")
            log.unlink(missing_ok=True)


def main():
    require(len(sys.argv) == 2, "usage: check_deployment.py PROGRAM")
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        check_kubernetes(program, folder)
        check_slurm(program, folder)


if __name__ == "__main__":
    main()
