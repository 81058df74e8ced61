"""The real template, deployed on the emulator by SAM, and driven from outside."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.deployed.built import BUILD
from tests.deployed.reply import Reply
from tests.e2e.emulator import REGION, Emulator, until

NAME = "proof"
SAM = "STEPWELL_SAM"
ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@dataclass(frozen=True)
class Stack:
    """A deployed stack. `caller` may use the API's signed routes, and nothing else."""

    emulator: Emulator

    @cached_property
    def outputs(self) -> dict[str, str]:
        """The outputs of the stack."""
        found = self.emulator.client("cloudformation").describe_stacks(StackName=NAME)
        return {each["OutputKey"]: each["OutputValue"] for each in found["Stacks"][0]["Outputs"]}

    @cached_property
    def resources(self) -> dict[str, str]:
        """Physical names by logical names, of the stack itself."""
        client = self.emulator.client("cloudformation")
        pages = client.get_paginator("list_stack_resources").paginate(StackName=NAME)
        found = [each for page in pages for each in page["StackResourceSummaries"]]
        return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}

    @cached_property
    def caller(self) -> Credentials:
        """A user who may call this API."""
        api = self.resources["HttpApi"]
        return self.user(
            {
                "Effect": "Allow",
                "Action": "execute-api:Invoke",
                "Resource": f"arn:aws:execute-api:{REGION}:*:{api}/*",
            }
        )

    def user(self, *statements: dict[str, Any]) -> Credentials:
        """A new user with these permissions."""
        iam, name = self.emulator.client("iam"), f"user-{uuid4().hex[:8]}"
        iam.create_user(UserName=name)
        if statements:
            document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
            iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return Credentials(key["AccessKeyId"], key["SecretAccessKey"])

    # What callers do

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        credentials: Credentials | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """A request to the API, signed if there are credentials."""
        host = urlsplit(self.outputs["ApiUrl"]).netloc
        content = None if body is None else json.dumps(body)
        request = AWSRequest(
            method,
            f"https://{host}{path}",
            data=content,
            headers={"Content-Type": "application/json", **(headers or {})},
        )
        if credentials is not None:
            SigV4Auth(credentials, "execute-api", REGION).add_auth(request)
        port = urlsplit(self.emulator.endpoint).port
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=60, context=self.emulator.trust()
        )
        try:
            connection.request(
                method, path, body=content, headers={"Host": host, **dict(request.headers.items())}
            )
            got = connection.getresponse()
            return Reply(
                status=got.status,
                headers={name.lower(): value for name, value in got.getheaders()},
                body=got.read().decode(),
            )
        finally:
            connection.close()

    def start(self, workflow: str, **input: Any) -> str:
        """Start a run; its id."""
        path = f"/v1/workflows/{workflow}/runs"
        reply = self.http("POST", path, {"input": input}, credentials=self.caller)
        assert reply.status == 202, reply
        run_id: str = reply.json["run_id"]
        return run_id

    def send(self, body: Any) -> None:
        """Put a message on the inbox queue, as another system would."""
        self.emulator.client("sqs").send_message(
            QueueUrl=self.outputs["InboxQueueUrl"],
            MessageBody=body if isinstance(body, str) else json.dumps(body),
        )

    # What they see

    def run(self, run_id: str) -> dict[str, Any]:
        """A run, over HTTP."""
        reply = self.http("GET", f"/v1/runs/{run_id}", credentials=self.caller)
        assert reply.status == 200, reply
        found: dict[str, Any] = reply.json
        return found

    def ended(self, run_id: str, *, within: float = 60) -> dict[str, Any]:
        """A run, once it has ended."""

        def look() -> dict[str, Any] | None:
            found = self.run(run_id)
            return found if found["status"] in ENDED else None

        return until(f"run {run_id} ends", look, within=within)

    def waits(self, run_id: str) -> dict[str, Any]:
        """What a run waits for, once it waits."""

        def look() -> dict[str, Any] | None:
            found = self.run(run_id)
            assert found["status"] not in ENDED, found
            return found["waiting"][0] if found["status"] == "SUSPENDED" else None

        return until(f"run {run_id} waits", look)

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """The history of a run, over HTTP."""
        reply = self.http("GET", f"/v1/runs/{run_id}/events", credentials=self.caller)
        assert reply.status == 200, reply
        found: list[dict[str, Any]] = reply.json["events"]
        return found

    def items(self, partition: str) -> list[dict[str, Any]]:
        """What one partition of the table holds."""
        found: list[dict[str, Any]] = self.emulator.client("dynamodb").query(
            TableName=self.outputs["Table"],
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": partition}},
        )["Items"]
        return found

    def schedules(self) -> list[dict[str, Any]]:
        """The schedules of the stack."""
        scheduler, group = self.emulator.client("scheduler"), self.outputs["ScheduleGroup"]
        listed = scheduler.list_schedules(GroupName=group)["Schedules"]
        return [scheduler.get_schedule(GroupName=group, Name=each["Name"]) for each in listed]

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What the command line says of this stack."""
        command = [str(Path(sys.executable).with_name("stepwell")), *arguments]
        return subprocess.run(
            [*command, "--stack", NAME, "--region", REGION],
            env=self.emulator.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def allows(self, role: str, action: str, resource: str) -> bool:
        """Whether IAM lets a function's role do something."""
        iam = self.emulator.client("iam")
        arn = iam.get_role(RoleName=self.resources[role])["Role"]["Arn"]
        found = iam.simulate_principal_policy(
            PolicySourceArn=arn, ActionNames=[action], ResourceArns=[resource]
        )
        return bool(found["EvaluationResults"][0]["EvalDecision"] == "allowed")


def deploy(emulator: Emulator) -> Stack:
    """Deploy what was built as anybody would: with `sam deploy`."""
    architecture = "arm64" if os.uname().machine in ("arm64", "aarch64") else "x86_64"
    command = [os.environ[SAM], "deploy", "--template-file", str(BUILD / "template.yaml")]
    command += ["--stack-name", NAME, "--region", REGION, "--resolve-s3", "--no-confirm-changeset"]
    command += ["--capabilities", "CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND", "--no-progressbar"]
    command += ["--parameter-overrides", f"Architecture={architecture}"]
    done = subprocess.run(
        command,
        env={**emulator.environment(), "SAM_CLI_TELEMETRY": "0"},
        cwd=emulator.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Stack(emulator)


def what_was_seen(stack: Stack) -> list[str]:
    """What the stack came to, in lines."""
    runs = stack.http("GET", "/v1/runs?limit=200", credentials=stack.caller).json["runs"]
    statuses = Counter((each["workflow"], each["status"]) for each in runs)
    letters = Counter(each["queue"]["S"] for each in stack.items("L#dead-letters"))
    log = stack.emulator.log.read_text()
    functions = sorted(name for name in stack.resources if name.endswith("Function"))
    return [
        *(f"{workflow}: {number} {status}" for (workflow, status), number in statuses.items()),
        *(f"dead letters of {queue}: {number}" for queue, number in letters.items()),
        *(
            f"{name}: {log.count(f'worker spawned for {stack.resources[name]} ')} processes"
            for name in functions
        ),
        f"schedules left: {len(stack.schedules())}",
    ]
