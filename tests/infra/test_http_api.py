"""Who may call what over HTTP, and what is written down of it."""

from __future__ import annotations

import json
import re

import pytest

from tests.infra.templates import PARENT, of_type

ROUTES = {
    route["RouteKey"]: route for route in of_type(PARENT, "AWS::ApiGatewayV2::Route").values()
}
(STAGE,) = of_type(PARENT, "AWS::ApiGatewayV2::Stage").values()
(INTEGRATION,) = of_type(PARENT, "AWS::ApiGatewayV2::Integration").values()
PRIVATE = {"ANY /v1/{proxy+}", "GET /openapi.json"}
PUBLIC = {"ANY /hooks/{token}", "GET /healthz"}


def test_the_routes_are_these() -> None:
    assert set(ROUTES) == PRIVATE | PUBLIC


@pytest.mark.parametrize("key", sorted(PRIVATE))
def test_a_private_route_takes_signed_requests_or_jwts(key: str) -> None:
    route = ROUTES[key]
    assert route["AuthorizationType"] == {"Fn::If": ["HasJwt", "JWT", "AWS_IAM"]}
    assert route["AuthorizerId"] == {
        "Fn::If": ["HasJwt", {"Ref": "JwtAuthorizer"}, {"Ref": "AWS::NoValue"}]
    }


@pytest.mark.parametrize("key", sorted(PUBLIC))
def test_a_public_route_says_so(key: str) -> None:
    assert ROUTES[key]["AuthorizationType"] == "NONE"


def test_all_routes_lead_to_the_api_function() -> None:
    (name,) = [
        name
        for name, each in PARENT["Resources"].items()
        if each["Type"] == "AWS::ApiGatewayV2::Integration"
    ]
    targets = {json.dumps(route["Target"]) for route in ROUTES.values()}
    assert targets == {json.dumps({"Fn::Sub": f"integrations/${{{name}}}"})}
    assert INTEGRATION["PayloadFormatVersion"] == "2.0"
    assert INTEGRATION["IntegrationUri"] == {"Fn::GetAtt": ["ApiFunction", "Arn"]}


def test_only_this_api_may_call_the_function() -> None:
    (permission,) = of_type(PARENT, "AWS::Lambda::Permission").values()
    assert permission["Principal"] == "apigateway.amazonaws.com"
    assert permission["SourceArn"]["Fn::Sub"].endswith(":${HttpApi}/*")


def test_requests_are_throttled() -> None:
    assert set(STAGE["DefaultRouteSettings"]) == {"ThrottlingRateLimit", "ThrottlingBurstLimit"}


def test_the_access_log_is_json_and_holds_no_path_which_would_hold_a_token() -> None:
    fields = json.loads(STAGE["AccessLogSettings"]["Format"])
    assert fields["route"] == "$context.routeKey"
    read = set(re.findall(r"\$context\.[\w.]+", json.dumps(fields)))
    assert not [each for each in read if "path" in each.lower() or "authorizer" in each.lower()]
