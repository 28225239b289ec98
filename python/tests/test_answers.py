"""explain, topology, simulate and settings: what the command says, as objects."""

import dataclasses
import json
import pathlib
import subprocess

import pytest

import tutti

ROOT = pathlib.Path(__file__).parents[2]
CLUSTER = ROOT / "examples/clusters/dgx_h100x64.yaml"
MACHINE = ROOT / "tests/golden/topologies/workstation_4xa6000.xml"


def said(*arguments):
    result = subprocess.run([tutti.command_path(), *arguments, "--json"], capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def plain(value):
    """As the command's JSON has it: names as there, what is None left out."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    told = {field.metadata.get("key", field.name): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {key: each for key, each in told.items() if each is not None}


def test_an_explanation_holds_all_that_the_command_says():
    answer = tutti.explain("reduce", ranks=6, bytes=4096, root=2, rank=5, algorithm="tree")
    assert plain(answer) == said("explain", "reduce", "-n", "6", "-b", "4096", "--root", "2", "--rank", "5", "--algorithm", "tree")
    assert (answer.collective, answer.algorithm, answer.program.rank, answer.proof.ok) == ("Reduce", "tree", 5, True)


def test_an_explanation_of_a_send_holds_its_way():
    answer = tutti.explain("sendrecv", ranks=4, root=3)
    assert plain(answer) == said("explain", "sendrecv", "-n", "4", "--root", "3")
    assert (answer.sender, answer.carrier) == (0, 0)


def test_a_topology_holds_all_that_the_command_says():
    answer = tutti.topology(MACHINE)
    assert plain(answer) == said("topo", "--topo", str(MACHINE))
    first, second, third, _ = answer.of_kind("GPU")
    assert (answer.path(first, second).kind, first.links[0].kind) == ("NVL", "PCI")
    assert answer.nodes[answer.path(first, third).relay].kind == "CPU"


def test_this_machine_has_a_processor_and_says_what_it_assumes():
    here = tutti.topology()
    assert here.of_kind("CPU")[0].processors
    assert all(isinstance(line, str) for line in here.assumed)
    port = next(iter(here.of_kind("NET")), None)
    assert port is None or here.path(here.of_kind("CPU")[0], port).gb_per_second > 0


def test_a_simulation_holds_all_that_the_command_says():
    answer = tutti.simulate("all_gather", CLUSTER, 1 << 20, nodes=4, system="nccl")
    (row,) = said("sim", "all_gather", "--cluster", str(CLUSTER), "--bytes", "1M", "--nodes", "4", "--system", "nccl")["rows"]
    assert plain(answer) == row
    assert (answer.nodes, answer.ranks, answer.bytes) == (4, 32, 1 << 20)


def test_a_slow_link_and_a_slow_rank_take_their_time():
    whole = tutti.simulate("all_reduce", CLUSTER, 256 << 20, nodes=4, algorithm="ring", protocol="Simple", fidelity="fair")
    slow = tutti.simulate("all_reduce", CLUSTER, 256 << 20, nodes=4, algorithm="ring", protocol="Simple", fidelity="fair",
                          what_if={"node 3 port 0 -> leaf 0": 0.25, 3: 2.0})
    assert slow.us > whole.us and slow.limited_by != whole.limited_by
    assert whole.events > 0 and whole.way == slow.way == "ring Simple"


def test_a_cluster_may_be_a_mapping():
    machine = {"gpus": 0, "ports": 1, "port_gbps": 100}
    cluster = {"cluster": "four hosts", "nodes": [{"count": 4, "machine": machine, "cpu_ranks": 2}], "network": {"shape": "switch"}}
    answer = tutti.simulate("all_reduce", cluster)
    assert answer.ranks == 8 and answer.us > 0
    machine["wheels"] = 4
    with pytest.raises(ValueError, match="wheels"):
        tutti.simulate("all_reduce", cluster)


def test_settings_are_those_in_force(monkeypatch):
    monkeypatch.setenv("NCCL_BUFFSIZE", "65536")
    monkeypatch.setenv("NCCL_ALGOO", "ring")
    answer = tutti.settings()
    (setting,) = (each for each in answer.settings if each.name == "NCCL_BUFFSIZE")
    assert (setting.value, setting.source, setting.has_effect) == ("65536", "environment", True)
    assert [each.name for each in answer.complaints] == ["NCCL_ALGOO"]


@pytest.mark.parametrize("ask, text", [
    (lambda: tutti.explain("nonsense"), "nonsense"),
    (lambda: tutti.explain("all_reduce", ranks=2, root=2), "--root"),
    (lambda: tutti.explain("all_reduce", algorithm="psychic"), "psychic"),
    (lambda: tutti.topology("no such file.xml"), "no such file.xml"),
    (lambda: tutti.simulate("all_reduce", "no such file.yaml"), "no such file.yaml"),
    (lambda: tutti.simulate("all_reduce", CLUSTER, nodes=0), "--nodes"),
])
def test_what_is_not_there_is_a_value_error_that_names_it(ask, text):
    with pytest.raises(ValueError, match=text) as caught:
        ask()
    assert "--help" not in str(caught.value)
    assert str(caught.value).count("tutti") == 1
