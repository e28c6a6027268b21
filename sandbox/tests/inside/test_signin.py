"""Who may in, and who not."""

from __future__ import annotations

import account
import requests


def ask(kube, web: requests.Session, token: str) -> int:
    answer = web.get(kube.cluster["endpoint"] + "/api/v1/namespaces/kube-system", headers={"Authorization": f"Bearer {token}"}, verify=str(kube.ca), timeout=20)
    return answer.status_code


def test_the_creator_is_let_in(empty, web):
    assert ask(empty, web, account.token("demo")) == 200


def test_an_expired_token_is_refused(empty, web):
    assert ask(empty, web, account.token("demo", age=16 * 60)) == 401


def test_a_token_of_fourteen_minutes_is_still_good(empty, web):
    assert ask(empty, web, account.token("demo", age=14 * 60)) == 200


def test_a_forged_token_is_refused(empty, web):
    assert ask(empty, web, account.token("demo", secret="a guess")) == 401


def test_a_token_for_another_cluster_is_refused(empty, web):
    assert ask(empty, web, account.token("other")) == 401


def test_no_token_is_nobody(empty, web):
    assert web.get(empty.cluster["endpoint"] + "/api/v1/pods", verify=str(empty.ca), timeout=20).status_code == 403
