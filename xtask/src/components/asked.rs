//! What the components asked, from an audit log.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// Requests of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    pub(super) component: &'static str,
    pub(super) verb: String,
    /// `pods/status`, `leases.coordination.k8s.io`, or a path such as `/version`.
    pub(super) resource: String,
}

/// How many requests of a kind had each answer, by code.
pub(super) type Answers = BTreeMap<u64, usize>;

/// All requests, by kind.
pub(super) type Asked = BTreeMap<Request, Answers>;

/// Reads an audit log. A request counts once, a watch when it was answered.
pub(super) fn read(log: &str) -> Result<Asked> {
    let mut asked = Asked::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).context("a line of the audit log")?;
        let text = |pointer: &str| {
            event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let verb = text("/verb");
        let is_end_of_watch = verb == "watch" && text("/stage") == "ResponseComplete";
        let Some(code) = event["responseStatus"]["code"].as_u64() else { continue };
        if is_end_of_watch && code < 400 {
            continue;
        }
        let component = component(&text("/user/username"));
        let request = Request { component, verb, resource: resource(text) };
        *asked.entry(request).or_default().entry(code).or_default() += 1;
    }
    Ok(asked)
}

/// Which component a user is.
fn component(user: &str) -> &'static str {
    match user {
        "system:kube-scheduler" => "kube-scheduler",
        "system:kube-proxy" => "kube-proxy",
        user if user.starts_with("system:bootstrap:") => "kubelet that joins",
        _ => "kubelet",
    }
}

/// The resource of an event, or its path without the query.
fn resource(text: impl Fn(&str) -> String) -> String {
    let mut resource = text("/objectRef/resource");
    if resource.is_empty() {
        let uri = text("/requestURI");
        return uri.split('?').next().unwrap_or_default().to_owned();
    }
    for (separator, pointer) in [(".", "/objectRef/apiGroup"), ("/", "/objectRef/subresource")] {
        let part = text(pointer);
        if !part.is_empty() {
            resource = resource + separator + &part;
        }
    }
    resource
}

#[cfg(test)]
mod tests {
    use super::{Request, read};
    use serde_json::json;

    #[test]
    fn requests_are_counted_by_component_verb_resource_and_code() {
        let event = |user: &str, verb: &str, stage: &str, code: u16| {
            json!({
                "user": {"username": user}, "verb": verb, "stage": stage,
                "responseStatus": {"code": code}, "requestURI": "/x?timeout=3s",
                "objectRef": {"resource": "leases", "apiGroup": "coordination.k8s.io"},
            })
        };
        let mut version = event("system:kube-scheduler", "get", "ResponseComplete", 200);
        version["objectRef"] = json!(null);
        let lines = [
            event("system:node:node-1", "watch", "ResponseStarted", 200),
            event("system:node:node-1", "watch", "ResponseComplete", 200),
            event("system:node:node-2", "get", "ResponseComplete", 404),
            event("system:node:node-2", "get", "ResponseComplete", 200),
            event("system:bootstrap:abcdef", "get", "ResponseComplete", 403),
            version,
        ];
        let log = lines.map(|line| format!("{line}\n")).concat();
        let asked = read(&log).unwrap();
        let leases = "leases.coordination.k8s.io";
        let expected = [
            ("kube-scheduler", "get", "/x", vec![(200, 1)]),
            ("kubelet", "get", leases, vec![(200, 1), (404, 1)]),
            ("kubelet", "watch", leases, vec![(200, 1)]),
            ("kubelet that joins", "get", leases, vec![(403, 1)]),
        ];
        let expected = expected.map(|(component, verb, resource, answers)| {
            let (verb, resource) = (verb.to_owned(), resource.to_owned());
            (Request { component, verb, resource }, answers.into_iter().collect())
        });
        assert_eq!(asked, expected.into_iter().collect());
    }
}
