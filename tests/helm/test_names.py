"""Names of what is rendered: they fit, and two releases in a namespace share none."""

import itertools
import re

import yaml
from chart import CHART, VALUES, helm, objects_of, one, values_named


def of_release(release, values="certmanager"):
    done = helm("template", release, CHART, values=values_named(values).read_text())
    assert done.returncode == 0, done.stderr
    return objects_of(done.stdout)


def test_names_fit_whatever_the_release_is_called():
    for release in "r" * 53, "presence":
        for each in of_release(release):
            name = each["metadata"]["name"]
            # Beside it, the names of pods have two parts of ten and five characters and their hyphens.
            assert len(name) <= (46 if each["kind"] == "Deployment" else 63) and re.fullmatch("[a-z][a-z0-9-]*[a-z0-9]", name)
            assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())


def names_of(objects):
    """Kinds and names of all objects, and of the secrets that cert-manager makes for them."""
    named = {(each["kind"], each["metadata"]["name"]) for each in objects}
    return named | {("Secret", each["spec"]["secretName"]) for each in objects if each["kind"] == "Certificate"}


def test_two_releases_share_no_name():
    long = "a-very-long-release-name-of-a-team-called"
    for pair in [(f"{long}-blue", f"{long}-green"), ("presence", "presence-edge"), ("presence", "presence-core")]:
        one_of_them, other = ({name for name in names_of(of_release(release))} for release in pair)
        assert not one_of_them & other, (pair, one_of_them & other)


def test_only_what_is_cut_has_another_name_than_before():
    names = {release: one(of_release(release), "Deployment", "-core")["metadata"]["name"] for release in ("x" * 31, "x" * 32)}
    assert names["x" * 31] == "x" * 31 + "-presence-core", "40 characters fit"
    assert re.fullmatch("x{31}-[0-9a-f]{8}-core", names["x" * 32])


def test_settings_of_addresses_and_of_the_test_reach_their_places():
    values = yaml.safe_load(values_named("sentinel").read_text())
    values["edge"].setdefault("service", {}).update({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]})
    taint = {"key": "for", "operator": "Equal", "value": "tests", "effect": "NoSchedule"}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}}}
    values["test"].update({"nodeSelector": {"kubernetes.io/arch": "amd64"}, "tolerations": [taint], "affinity": affinity})
    done = helm("template", "here", CHART, values=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    objects = objects_of(done.stdout)
    service, pod = one(objects, "Service", "-edge")["spec"], one(objects, "Pod", "-test")["spec"]
    assert (service["ipFamilyPolicy"], service["ipFamilies"]) == ("PreferDualStack", ["IPv6", "IPv4"])
    assert (pod["nodeSelector"], pod["tolerations"], pod["affinity"]) == ({"kubernetes.io/arch": "amd64"}, [taint], affinity)
    plain = dict(itertools.chain(*(each["spec"].items() for each in of_release("here", "sentinel") if each["kind"] in ("Service", "Pod"))))
    assert not {"ipFamilyPolicy", "ipFamilies", "nodeSelector", "tolerations", "affinity"} & plain.keys()


def test_the_service_of_cores_for_those_elsewhere_takes_families_of_addresses():
    values = yaml.safe_load(values_named("two-region-east").read_text())
    values["core"]["external"].update({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]})
    done = helm("template", "here", CHART, values=yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    service = one(objects_of(done.stdout), "Service", "-core-external")["spec"]
    assert (service["ipFamilyPolicy"], service["ipFamilies"]) == ("RequireDualStack", ["IPv4", "IPv6"])


def test_annotations_of_everything_are_on_everything_but_pods_and_give_way_to_an_objects_own():
    kinds = set()
    for path in VALUES:
        values = yaml.safe_load(path.read_text())
        values["commonAnnotations"] = {"example.com/owner": "us", "example.com/cost": "7"}
        values["serviceAccount"] = {"annotations": {"example.com/owner": "them"}}
        done = helm("template", "here", CHART, values=yaml.safe_dump(values))
        assert done.returncode == 0, done.stderr
        for each in objects_of(done.stdout):
            kinds.add(each["kind"])
            annotations = each["metadata"]["annotations"]
            owner = "them" if each["kind"] == "ServiceAccount" else "us"
            assert (annotations["example.com/owner"], annotations["example.com/cost"]) == (owner, "7"), each["metadata"]["name"]
            if each["kind"] == "Deployment":
                of_pods = each["spec"]["template"]["metadata"]["annotations"]
                assert not [key for key in of_pods if key in values["commonAnnotations"]]
    assert {"Certificate", "ConfigMap", "Deployment", "HTTPRoute", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy"} <= kinds
    assert {"Pod", "PodDisruptionBudget", "PrometheusRule", "Service", "ServiceAccount", "ServiceMonitor", "TLSRoute"} <= kinds
