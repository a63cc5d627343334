//! Accounts whose pods may use only the secrets that the account names.
use crate::kind::core::ENFORCE_MOUNTABLE_SECRETS as ENFORCED;
use crate::kind::{list, text};
use serde_json::Value;
use setpoint_object::boolean;
use setpoint_object::meta::ObjectExt;
use std::collections::HashSet;

pub(super) fn is_enforced(account: &Value) -> bool {
    let annotations = account.meta().and_then(|meta| meta.get("annotations"));
    let value = annotations.and_then(|all| all.get(ENFORCED)?.as_str());
    value.and_then(boolean::parse) == Some(true)
}

/// Why a new pod may not use a secret; `None`: it may use all that it names.
pub(super) fn refusal(account: &Value, spec: &Value) -> Option<String> {
    let names = |member: &str| -> HashSet<&str> {
        list(account, member).iter().map(|secret| text(secret, "name")).collect()
    };
    let mountable = names("secrets");
    let volumes = list(spec, "volumes").iter().filter(|volume| volume["secret"].is_object());
    let mut volumes = volumes.map(|volume| text(&volume["secret"], "secretName"));
    if let Some(name) = volumes.find(|name| !mountable.contains(name)) {
        return Some(unnamed(&format!("volume with secret.secretName=\"{name}\""), account));
    }
    let of = |member: &str, noun: &str| of_containers(account, list(spec, member), noun);
    if let Some(found) = of("initContainers", "init container") {
        return Some(found);
    }
    if let Some(found) = of("containers", "container") {
        return Some(found);
    }
    let pulling = names("imagePullSecrets");
    let own = list(spec, "imagePullSecrets").iter().map(|secret| text(secret, "name"));
    let other = own.enumerate().find(|(_, name)| !pulling.contains(name));
    other.map(|(i, name)| {
        let account = account.name();
        format!(
            r#"imagePullSecrets[{i}].name="{name}" is not allowed because service account {account} does not reference that imagePullSecret"#
        )
    })
}

/// Why ephemeral containers may not use a secret.
pub(super) fn refusal_of_ephemeral(account: &Value, spec: &Value) -> Option<String> {
    of_containers(account, list(spec, "ephemeralContainers"), "ephemeral container")
}

fn of_containers(account: &Value, containers: &[Value], noun: &str) -> Option<String> {
    let mountable: HashSet<&str> =
        list(account, "secrets").iter().map(|secret| text(secret, "name")).collect();
    let is_refused =
        |reference: &Value| reference.is_object() && !mountable.contains(text(reference, "name"));
    for container in containers {
        let name = text(container, "name");
        for variable in list(container, "env") {
            let reference = &variable["valueFrom"]["secretKeyRef"];
            if is_refused(reference) {
                let (variable, secret) = (text(variable, "name"), text(reference, "name"));
                let what = format!(
                    "{noun} {name} with envVar {variable} referencing secret.secretName=\"{secret}\""
                );
                return Some(unnamed(&what, account));
            }
        }
        for source in list(container, "envFrom") {
            let reference = &source["secretRef"];
            if is_refused(reference) {
                let secret = text(reference, "name");
                let what = format!(
                    "{noun} {name} with envFrom referencing secret.secretName=\"{secret}\""
                );
                return Some(unnamed(&what, account));
            }
        }
    }
    None
}

fn unnamed(what: &str, account: &Value) -> String {
    let account = account.name();
    format!(
        "{what} is not allowed because service account {account} does not reference that secret"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_use_the_secrets_of_their_account() {
        let account = json!({
            "metadata": {"name": "a", "annotations": {ENFORCED: "true"}},
            "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}],
        });
        assert!(is_enforced(&account) && !is_enforced(&json!({"metadata": {"name": "a"}})));
        let container = |reference: Value| {
            json!([{"name": "c", "env": [
                {"name": "E", "valueFrom": {"secretKeyRef": reference}},
            ]}])
        };
        let from = |name: &str| json!([{"name": "c", "envFrom": [{"secretRef": {"name": name}}]}]);
        let volume = |name: &str| json!([{"name": "v", "secret": {"secretName": name}}]);
        let end = "is not allowed because service account a does not reference that";
        for (spec, what) in [
            (json!({"volumes": volume("own")}), None),
            (json!({"containers": from("own")}), None),
            (json!({"imagePullSecrets": [{"name": "pull"}]}), None),
            (json!({"volumes": volume("x")}), Some(r#"volume with secret.secretName="x""#)),
            (
                json!({"initContainers": container(json!({"name": "x"}))}),
                Some(r#"init container c with envVar E referencing secret.secretName="x""#),
            ),
            (
                json!({"containers": from("x")}),
                Some(r#"container c with envFrom referencing secret.secretName="x""#),
            ),
        ] {
            let expected = what.map(|what| format!("{what} {end} secret"));
            assert_eq!(refusal(&account, &spec), expected, "{spec}");
        }
        let pulls = json!({"imagePullSecrets": [{"name": "pull"}, {"name": "own"}]});
        let expected = format!(r#"imagePullSecrets[1].name="own" {end} imagePullSecret"#);
        assert_eq!(refusal(&account, &pulls), Some(expected));
        let ephemeral = json!({"ephemeralContainers": from("x")});
        let what = r#"ephemeral container c with envFrom referencing secret.secretName="x""#;
        assert_eq!(
            refusal_of_ephemeral(&account, &ephemeral),
            Some(format!("{what} {end} secret"))
        );
        assert_eq!(refusal(&account, &ephemeral), None);
    }
}
