"""Commands that talk to a gateway: who gets the token, whose certificate is trusted, and what they say otherwise."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from small_servers import (
    gateway_says,
    make_certificate,
    needs_openssl,
    server_context,
    serving,
    state_of_a_gateway,
)
from typer.testing import CliRunner

from fairlead.cli import app
from fairlead.cli.top import frame
from fairlead.engine.live.status import AppStatus, FunctionStatus, NodeStatus, Status, WorkflowStatus
from fairlead.load import Open, Plan, TLSError, run_load

TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLEAD_TOKEN", TOKEN)
    monkeypatch.delenv("FAIRLEAD_TRACEBACK", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    return {
        "own": make_certificate(folder, "own", "DNS:localhost,IP:127.0.0.1"),
        "other": make_certificate(folder, "other", "DNS:localhost,IP:127.0.0.1"),
        "elsewhere": make_certificate(folder, "elsewhere", "DNS:elsewhere.example"),
    }


def run(*arguments: str):
    return CliRunner().invoke(app, arguments)


def said(*arguments: str, code: int) -> str:
    """The one line that the command says when it fails."""
    done = run(*arguments)
    assert done.exit_code == code, done.output
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Loading ")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("Error: ")
    return lines[0]


def tokens(server) -> set[str | None]:
    return {headers.get("authorization") for _, headers, _ in server.heard}


class TestToken:
    def test_the_gateway_that_was_started_here_gets_the_token(self):
        with serving() as server, state_of_a_gateway(Path(".fairlead/app"), server.url):
            done = run("top", "--once")
        assert done.exit_code == 0, done.output
        assert tokens(server) == {f"Bearer {TOKEN}"}

    def test_a_url_that_the_user_names_gets_the_token(self):
        with serving() as server:
            assert run("top", "--once", "--url", server.url).exit_code == 0
        assert tokens(server) == {f"Bearer {TOKEN}"}

    @pytest.mark.parametrize("options", [(), ("--state", ".fairlead/app")], ids=["found", "named-folder"])
    def test_a_file_that_others_can_write_to_is_not_used(self, options):
        with serving() as server, state_of_a_gateway(Path(".fairlead/app"), server.url) as file:
            file.chmod(0o622)
            line = said("top", "--once", *options, code=2)
        assert "other users can write to it. Name it with --url." in line
        assert server.heard == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_a_file_of_another_user_is_not_used(self):
        with serving() as server, state_of_a_gateway(Path(".fairlead/app"), server.url) as file:
            os.chown(file, 65534, 65534)
            assert "it belongs to another user" in said("top", "--once", code=2)
        assert server.heard == []

    def test_a_link_to_a_file_is_not_followed(self):
        with serving() as server, state_of_a_gateway(Path(".fairlead/app"), server.url) as file:
            file.rename("elsewhere.json")
            file.symlink_to(Path("elsewhere.json").resolve())
            assert "it cannot be read" in said("top", "--once", code=2)
        assert server.heard == []

    def test_the_file_of_a_gateway_that_has_ended_is_not_used(self):
        """Its port may be another program's by now."""
        with serving() as server:
            with state_of_a_gateway(Path(".fairlead/app"), server.url):
                pass  # the lock is given back
            assert "the gateway that wrote it has ended" in said("top", "--once", code=2)
            ended = subprocess.Popen([sys.executable, "-c", ""])
            ended.wait()
            with state_of_a_gateway(Path(".fairlead/next"), server.url, pid=ended.pid):
                assert "the gateway that wrote it has ended" in said("top", "--once", code=2)
        assert server.heard == []

    @pytest.mark.parametrize(
        "url",
        ["http://192.0.2.1:80", "http://localhost.example:80", "http://127.0.0.1.example:80", "x", "", "http://["],
    )
    def test_a_url_in_a_file_must_be_of_this_machine(self, url):
        with state_of_a_gateway(Path(".fairlead/app"), url):
            assert "of this machine" in said("top", "--once", code=2)

    @pytest.mark.parametrize("text", [b"", b"[]", b"\xff\x00", b'{"url": 3, "pid": 1}', b"[" * 100_000])
    def test_a_file_that_is_none_is_not_used(self, text):
        with state_of_a_gateway(Path(".fairlead/app"), "") as file:
            file.write_bytes(text)
            assert "it is not as a gateway writes it" in said("top", "--once", code=2)

    def test_a_gateway_that_runs_goes_before_a_newer_file_of_one_that_ended(self):
        with serving() as server, state_of_a_gateway(Path(".fairlead/runs"), server.url):
            with state_of_a_gateway(Path(".fairlead/ended"), "http://127.0.0.1:9"):
                pass
            assert run("top", "--once").exit_code == 0

    @pytest.mark.parametrize("command", [("top", "--once", "--url"), ("load", "--rate", "1")], ids=["top", "load"])
    def test_a_redirect_is_not_followed(self, command):
        with serving() as other, serving(lambda _: (302, {"Location": f"{other.url}/v1/status"}, {})) as server:
            assert "a redirect, which is not followed" in said(*command, server.url, code=1)
        assert other.heard == []

    @pytest.mark.parametrize("token", ["café", "two words", "a\r\nHost: b"])
    def test_a_token_that_cannot_be_sent_is_said(self, monkeypatch, token):
        monkeypatch.setenv("FAIRLEAD_TOKEN", token)
        assert "printable ASCII" in said("top", "--url", "http://127.0.0.1:9", code=2)
        assert "printable ASCII" in said("load", "http://127.0.0.1:9/x", "--rate", "1", code=2)


@needs_openssl
class TestTLS:
    def test_a_self_signed_gateway_is_trusted_by_its_certificate(self, certificates):
        with serving(tls=server_context(*certificates["own"])) as server:
            cacert = str(certificates["own"][0])
            assert run("top", "--once", "--url", server.url, "--cacert", cacert).exit_code == 0
            arguments = ["--rate", "40", "--arrivals", "even", "--duration", "0.5s", "--json", "-", "-q"]
            done = run("load", server.url, "--cacert", cacert, *arguments)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["answered"] == 20
        assert tokens(server) == {f"Bearer {TOKEN}"}

    def test_a_gateway_that_was_started_here_says_itself_which_certificate_it_has(self, certificates):
        certificate, _ = certificates["own"]
        tls = server_context(*certificates["own"])
        with serving(tls=tls) as server, state_of_a_gateway(Path(".fairlead/app"), server.url, cacert=certificate):
            assert run("top", "--once").exit_code == 0

    @pytest.mark.parametrize(
        ("served", "trusted", "says"),
        [
            ("own", None, "Give the certificate to trust with --cacert FILE"),
            ("own", "other", "neither contains it nor the authority that signed it"),
            ("elsewhere", "elsewhere", "Use a name or an address that the certificate contains"),
        ],
        ids=["not-given", "another", "other-name"],
    )
    @pytest.mark.parametrize("command", ["top", "explain", "load", "load-path"])
    def test_an_untrusted_server_gets_nothing_and_the_line_says_what_to_do(
        self, certificates, served, trusted, says, command
    ):
        with serving(tls=server_context(*certificates[served])) as server:
            arguments = {
                "top": ["top", "--once", "--url", server.url],
                "explain": ["explain", "1", "--url", server.url],
                "load": ["load", server.url, "--rate", "1"],
                "load-path": ["load", f"{server.url}/x", "--rate", "1"],
            }[command]
            if trusted is not None:
                arguments += ["--cacert", str(certificates[trusted][0])]
            line = said(*arguments, code=2 if command == "explain" else 1)
        assert "its certificate is not trusted" in line
        assert says in line
        assert server.heard == []

    def test_http_where_tls_is_spoken_and_the_other_way_round(self, certificates):
        with serving(tls=server_context(*certificates["own"])) as server:
            line = said("top", "--url", server.url.replace("https", "http"), code=1)
            assert "If it serves TLS, use https://." in line
        with serving() as server:
            url = server.url.replace("http", "https")
            assert "If it serves plain HTTP, use http://." in said("top", "--url", url, code=1)
            with pytest.raises(TLSError, match="does not speak TLS"):
                run_load(url, Plan(arrivals=Open(rate_rps=1), duration_s=1))

    def test_serve_refuses_a_certificate_that_it_could_not_use(self, certificates, folder):
        (folder / "app.py").touch()
        (folder / "garbage").write_bytes(b"\0\xff")
        (folder / "broken").write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
        (certificate, key), (_, other) = certificates["own"], certificates["other"]
        encrypted = folder / "encrypted"
        subprocess.run(
            ["openssl", "rsa", "-in", key, "-aes256", "-passout", "pass:secret", "-out", encrypted],
            check=True,
            capture_output=True,
        )
        for certfile, keyfile, says in (
            (certificate, None, "--certfile needs --keyfile"),
            (None, key, "--keyfile needs --certfile"),
            ("nowhere", key, "--certfile nowhere: cannot be read: No such file"),
            (folder, key, "cannot be read: Is a directory"),
            ("garbage", key, "--certfile garbage: does not hold a certificate"),
            ("broken", key, "cannot be used for TLS"),
            (certificate, "garbage", "--keyfile garbage: does not hold a private key"),
            (certificate, other, "is not the key of --certfile"),
            (certificate, encrypted, "is encrypted"),
        ):
            options = [f"--certfile={certfile}"] * (certfile is not None) + [f"--keyfile={keyfile}"] * (
                keyfile is not None
            )
            assert says in said("serve", "app.py", *options, code=2)
        assert not (folder / ".fairlead").exists()  # nothing was begun


class TestObjective:
    """The workflow takes 50 ms, and its objective is 20 ms."""

    ARGUMENTS = ("--rate", "20", "--arrivals", "even", "--duration", "0.5s")

    def test_load_judges_by_the_workflow_s_objective(self):
        with serving() as server:
            done = run("load", server.url, *self.ARGUMENTS, "--json", "result.json")
        assert done.exit_code == 0, done.output
        result = json.loads(Path("result.json").read_text())
        assert (result["answered"], result["in_time"], result["deadline_s"]) == (10, 0, 0.02)
        assert "/v1/workflows/site.slow: deadline 20 ms, the workflow's objective" in done.stdout
        assert not any("x-deadline-ms" in headers for _, headers, _ in server.heard)  # the gateway knows it

    def test_also_by_the_address_of_the_workflow(self):
        with serving() as server:
            done = run("load", f"{server.url}/v1/workflows/site.slow", "--body", "{}", *self.ARGUMENTS)
        assert "deadline 20 ms, the workflow's objective" in done.stdout

    def test_a_deadline_of_one_s_own_goes_before_it_and_is_sent(self):
        with serving() as server:
            done = run("load", server.url, *self.ARGUMENTS, "--deadline-ms", "9000", "--json", "-", "-q")
        result = json.loads(done.stdout)
        assert (result["in_time"], result["deadline_s"]) == (10, 9.0)
        assert sum("x-deadline-ms" in headers for _, headers, _ in server.heard) == 10

    def test_another_server_has_none_and_the_table_says_so(self):
        with serving(lambda _: (200, {}, {})) as server:
            done = run("load", f"{server.url}/any", *self.ARGUMENTS)
        assert "no deadline (none was given), so every answer is in time" in " ".join(done.stdout.split())

    @pytest.mark.parametrize("how", ["options", "file"])
    def test_several_inputs_are_sent_in_turn(self, how):
        Path("inputs.jsonl").write_text('1\n\n{"é": null}\n"three"\n')
        options = {
            "options": ["--input", "1", "--input", '{"é": null}', "--input", '"three"'],
            "file": ["--inputs", "inputs.jsonl"],
        }[how]
        with serving() as server:
            done = run("load", server.url, "--rate", "20", "--arrivals", "even", "--duration", "0.4s", *options, "-q")
        assert done.exit_code == 0, done.output
        sent = [json.loads(body)["input"] for _, _, body in server.heard if body]
        assert [sent.count(value) for value in (1, {"é": None}, "three")] == [3, 3, 2]

    def test_a_name_of_two_workflows_is_said_to_be_ambiguous(self):
        def says(path):
            if path == "/v1/apps":
                return 200, {}, {"apps": [{"name": name, "workflows": ["main"]} for name in ("a", "b")]}
            return gateway_says(path)

        with serving(says) as server:
            line = said("load", server.url, "--workflow", "main", "--rate", "1", code=2)
        assert "2 workflows are named 'main'. Use the full name: a.main, b.main." in line


class TestExplain:
    def test_the_gateway_says_where_its_records_are(self, folder):
        (folder / "elsewhere").mkdir()

        def says(path):
            return 200, {}, {**gateway_says("/v1/status")[2], "state": str(folder / "elsewhere")}

        with serving(says) as server:
            line = said("explain", "7", "--url", server.url, code=2)
        assert f"No live run is in {folder / 'elsewhere'}" in line

    @pytest.mark.parametrize("state", [None, "/nowhere/at/all"])
    def test_where_it_does_not_the_state_folder_is_asked_for(self, state):
        def says(path):
            return 200, {}, {**gateway_says("/v1/status")[2], "state": state}

        with serving(says) as server:
            assert "Name the folder with --state" in said("explain", "7", "--url", server.url, code=2)

    def test_a_gateway_that_has_ended_is_known_by_its_file(self):
        url = "http://127.0.0.1:9"
        with state_of_a_gateway(Path(".fairlead/app"), url):
            pass
        assert "No live run is in .fairlead/app" in said("explain", "7", "--url", url, code=2)
        assert "name its state folder with --state" in said("explain", "7", "--url", "http://127.0.0.1:10", code=2)

    def test_another_machine_is_not_asked(self):
        assert "is not this machine" in said("explain", "7", "--url", "http://192.0.2.1", code=2)


@pytest.mark.parametrize(
    "answer", [b"", b"\0\xff\xfe", b"<html>", b"[]", b'{"apps": 3}', b"[" * 100_000, b'"\\ud800"', b"x" * (65 << 20)],
    ids=["empty", "binary", "html", "list", "other", "deep", "surrogate", "huge"],
)  # fmt: skip
@pytest.mark.parametrize("command", [("top", "--once", "--url"), ("load", "--rate", "1")], ids=["top", "load"])
def test_an_answer_that_no_gateway_gives_is_said_in_one_line(command, answer):
    with serving(lambda _: (200, {}, answer)) as server:
        said(*command, server.url, code=1)


def status_of(name: str) -> Status:
    workflow = WorkflowStatus(
        name=name,
        slo_s=0.15,
        open=12,
        offered=12_345,
        completed=12_000,
        in_time=11_900,
        rejected=300,
        dropped=45,
        failed=0,
        cancelled=0,
        cost_usd=0.1,
        recent_offered_rps=411.2,
        recent_goodput_rps=284.7,
        recent_attainment=0.692,
        recent_p50_s=0.0421,
        recent_p99_s=0.1493,
        least_slack_s=-0.0123,
    )
    function = FunctionStatus(
        name=name,
        waiting=17,
        starting=1,
        idle=2,
        busy=11,
        batches=900,
        invocations=12_345,
        recent_batch_size=3.7,
        predicted_s=0.00312,
        observed_s=0.00298,
        replicas=12,
        vcpus=12.0,
    )
    node = NodeStatus(name="local", vcpus=2.0, load=0.51, instances=12)
    served = AppStatus(
        name="shop",
        generation=1,
        policy="fairlead",
        uptime_s=1.0,
        draining=0,
        refused_actions=0,
        workflows=(workflow,),
        functions=(function,),
        nodes=(node,),
    )
    return Status(uptime_s=61.0, is_ready=True, is_draining=False, apps=(served,))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["main", "classify_photos", "a_name_that_is_longer_than_any_column_of_a_terminal"])
def test_top_shows_whole_headings_and_numbers(width, name):
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(frame(status_of(name), "http://127.0.0.1:8000"))
    text = capture.get()
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    words = text.split()
    for heading in ("workflow", "offered", "goodput", "p50", "p99", "refused", "waiting", "starting", "idle", "busy"):
        assert heading in words
    for number in ("411", "285", "69.2", "42.1", "149", "345", "17", "11"):
        assert number in words
    if width == 120:
        for heading in ("slack", "vCPUs", "wanted", "predicted", "total"):
            assert heading in words
