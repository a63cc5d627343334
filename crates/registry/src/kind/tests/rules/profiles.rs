//! Profiles of AppArmor and seccomp, and resources of whole pods: kube-apiserver 1.36's answers.
use super::{changed, context, created, fresh};
use crate::kind::rows;
use serde_json::{Value, json};

const POD: super::Name = ("", "v1", "Pod");

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x"}]}})
}

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// A pod with a profile of its own, if it is not null, and annotations for its container.
fn profiled(context: Value, own: Value, annotations: Value) -> Value {
    let mut pod = pod();
    pod["metadata"]["annotations"] = annotations;
    pod["spec"]["securityContext"] = context;
    pod["spec"]["containers"][0]["securityContext"] = own;
    pod
}

#[test]
fn annotations_for_app_armor_become_members_of_a_new_pod() {
    let key = format!("{APP_ARMOR}c");
    let warning = format!(
        "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
    );
    let row = rows::of("", "Pod").unwrap();
    let default = json!({"type": "RuntimeDefault"});
    let local = json!({"type": "Localhost", "localhostProfile": "a"});
    let set = |profile: &Value| json!({"appArmorProfile": profile});
    let none = Value::Null;
    let cases = [
        // Of the pod, of the container, the annotation: what the container gets, and whether there
        // is a warning.
        (json!({}), json!({}), "runtime/default", &default, true),
        (json!({}), json!({}), "localhost/a", &local, true),
        (json!({}), json!({}), "unconfined", &json!({"type": "Unconfined"}), true),
        (set(&local), json!({}), "runtime/default", &default, true),
        (set(&local), json!({}), "localhost/a", &none, false),
        (json!({}), set(&local), "runtime/default", &local, false),
        // No profile can be made of these.
        (json!({}), json!({}), "localhost/", &none, true),
        (json!({}), json!({}), "localhost/ a", &none, true),
        (json!({}), json!({}), "x", &none, true),
        (json!({}), json!({}), "", &none, true),
    ];
    for (of_pod, own, annotation, expected, warns) in cases {
        let mut annotations = json!({"a": "b"});
        annotations[&key] = annotation.into();
        let sent = profiled(of_pod, own, annotations.clone());
        let warnings = (row.prepare_warnings)(&sent);
        assert_eq!(warnings, vec![&*warning; warns.into()], "{sent}");
        let mut pod = sent.clone();
        (row.prepare)(&context(), &mut pod, None);
        let profile = &pod["spec"]["containers"][0]["securityContext"]["appArmorProfile"];
        assert_eq!(profile, expected, "{sent}");
        assert_eq!(pod["metadata"]["annotations"], annotations);
        // What exists stays as it is.
        let mut changed = sent.clone();
        (row.prepare)(&context(), &mut changed, Some(&sent));
        assert_eq!(changed, sent);
    }
    let mut windows = profiled(json!({}), json!({}), json!({key: "localhost/a"}));
    windows["spec"]["os"] = json!({"name": "windows"});
    assert_eq!((row.prepare_warnings)(&windows), [""; 0]);
    (row.prepare)(&context(), &mut windows, None);
    assert_eq!(windows["spec"]["containers"][0]["securityContext"], json!({}));
}

#[test]
fn annotations_for_profiles_agree_with_members() {
    let of = |noun: &str, member: &str, what: &str, place: &str| {
        let shown = if what == "type" { "type" } else { "localhostProfile" };
        format!(
            "{place}.securityContext.{member}.{shown}: Forbidden: {noun} {what} in annotation and field must match"
        )
    };
    let app_armor = |what| of("apparmor", "appArmorProfile", what, "spec.containers[0]");
    let seccomp = |what| of("seccomp", "seccompProfile", what, "spec.containers[0]");
    let armor = |ty: &str| json!({"appArmorProfile": {"type": ty}});
    let armor_a = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}});
    let calls = |ty: &str| json!({"seccompProfile": {"type": ty}});
    let calls_a = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}});
    let (armor_key, calls_key) = (format!("{APP_ARMOR}c"), format!("{SECCOMP}c"));
    let cases = [
        (armor("Unconfined"), &armor_key, "unconfined", None),
        (armor("Unconfined"), &armor_key, "runtime/default", Some(app_armor("type"))),
        (armor("RuntimeDefault"), &armor_key, "localhost/a", Some(app_armor("type"))),
        (armor_a.clone(), &armor_key, "localhost/a", None),
        (armor_a.clone(), &armor_key, "localhost/b", Some(app_armor("profile"))),
        (armor_a.clone(), &armor_key, "", Some(app_armor("type"))),
        (calls("RuntimeDefault"), &calls_key, "docker/default", None),
        (calls("RuntimeDefault"), &calls_key, "unconfined", Some(seccomp("type"))),
        (calls("Unconfined"), &calls_key, "runtime/default", Some(seccomp("type"))),
        (calls_a.clone(), &calls_key, "localhost/a", None),
        (calls_a, &calls_key, "localhost/b", Some(seccomp("profile"))),
    ];
    let set = ("apps", "v1", "DaemonSet");
    for (context, key, annotation, expected) in cases {
        let mut annotations = json!({});
        annotations[key] = annotation.into();
        let sent = profiled(Value::Null, context.clone(), annotations.clone());
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(created(POD, sent.clone()), expected, "{sent}");
        // A template has the same rules.
        let mut template = sent;
        template["metadata"] = json!({"labels": {"a": "b"}, "annotations": annotations});
        let sent = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
        let of_template = expected.iter().map(|text| format!("spec.template.{text}"));
        assert_eq!(created(set, sent), of_template.collect::<Vec<_>>());
    }
    // The profile of the pod is that of containers without one, for AppArmor.
    let pod = profiled(armor("Unconfined"), json!({}), json!({armor_key.clone(): ""}));
    assert_eq!(created(POD, pod), [app_armor("type")]);
    let key = "seccomp.security.alpha.kubernetes.io/pod";
    let pod = profiled(calls("Unconfined"), json!({}), json!({key: "docker/default"}));
    assert_eq!(created(POD, pod), [of("seccomp", "seccompProfile", "type", "spec")]);
    let mut windows = profiled(Value::Null, armor_a, json!({armor_key: "unconfined"}));
    windows["spec"]["os"] = json!({"name": "windows"});
    assert!(!created(POD, windows).iter().any(|text| text.contains("must match")));
}

#[test]
fn annotations_for_profiles_stay_and_are_checked_twice_by_an_update() {
    let (armor, calls) = (format!("{APP_ARMOR}c"), format!("{SECCOMP}c"));
    let old = fresh(POD, profiled(Value::Null, json!({}), json!({armor.clone(): "localhost/a"})));
    let mut new = old.clone();
    new["metadata"]["annotations"] = json!({armor.clone(): "x", calls.clone(): "y"});
    let [at_armor, at_calls] =
        [format!("metadata.annotations[{armor}]"), format!("metadata.annotations.{calls}")];
    let of_calls = format!("{at_calls}: Invalid value: \"y\": must be a valid seccomp profile");
    let of_armor =
        format!("{at_armor}: Invalid value: \"x\": invalid AppArmor profile name: \"x\"");
    let stays = format!("{at_armor}: Forbidden: may not remove or update AppArmor annotations");
    let twice = [&of_calls, &of_armor, &stays, &of_calls, &of_armor];
    assert_eq!(changed(POD, &old, &new, false), twice.map(String::as_str));
    // The status has its own look at them.
    assert_eq!(changed(POD, &old, &new, true), twice.map(String::as_str)[2..]);
}

#[test]
fn resources_of_a_whole_pod_are_completed_from_those_of_its_containers() {
    let of = |whole: Value, containers: &[Value]| {
        let mut pod = json!({"spec": {"resources": whole, "containers": []}});
        pod["spec"]["containers"] = containers
            .iter()
            .enumerate()
            .map(|(i, resources)| json!({"name": format!("c{i}"), "image": "x", "resources": resources}))
            .collect();
        super::stored("", "v1", "Pod", pod)["spec"]["resources"].clone()
    };
    let containers =
        [json!({"requests": {"cpu": "1", "disk": "1"}}), json!({"limits": {"cpu": "500m"}})];
    let limits = json!({"cpu": "4", "memory": "1Gi"});
    assert_eq!(
        of(json!({"limits": limits}), &containers),
        json!({"limits": limits, "requests": {"cpu": "1500m", "memory": "1Gi"}})
    );
    let given = json!({"limits": limits, "requests": {"cpu": "3", "memory": "1Mi"}});
    assert_eq!(of(given.clone(), &containers), given);
    // Without a limit, nothing is requested but what is given.
    let requests = json!({"requests": {"memory": "1Gi"}});
    assert_eq!(of(requests.clone(), &containers), requests);
    assert_eq!(of(json!({}), &containers), json!({}));
    let huge = [json!({"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}})];
    assert_eq!(
        of(json!({"requests": {"cpu": "2"}}), &huge),
        json!({
            "limits": {"hugepages-2Mi": "2Mi"}, "requests": {"cpu": "2", "hugepages-2Mi": "2Mi"},
        })
    );
    let requested = json!({"requests": {"hugepages-2Mi": "4Mi"}});
    assert_eq!(of(requested.clone(), &huge), requested);
}

#[test]
fn a_whole_pod_has_no_claims_of_its_own() {
    let mut object = pod();
    object["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimName": "r"}]);
    object["spec"]["resources"] = json!({"claims": [{"name": "r"}]});
    const AT: &str = "spec.resources.claims";
    let forbidden = format!("{AT}: Forbidden: claims may not be set for Resources at pod-level");
    assert_eq!(created(POD, object.clone()), [&*forbidden]);
    object["spec"]["resourceClaims"] = Value::Null;
    let unknown = format!(
        "{AT}[0]: Not found: \"r\": must be one of the names in pod.spec.resourceClaims which is empty"
    );
    assert_eq!(created(POD, object), [forbidden, unknown]);
}
