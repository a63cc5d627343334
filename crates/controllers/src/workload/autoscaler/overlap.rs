//! Which autoscalers select a pod: no two may scale the same pods.

use super::Pod;
use crate::workload::by_label::{Labels, required_in};
use setpoint_object::label::Selector;
use setpoint_runtime::Request;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The selectors of the targets of all autoscalers, found by a label that they require.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    of: BTreeMap<Request, Selector>,
    by_label: BTreeMap<String, BTreeSet<Request>>,
}

impl Selectors {
    /// Remembers the selector of an autoscaler in place of an earlier one.
    pub(super) fn set(&mut self, request: &Request, selector: &Selector) {
        if self.of.get(request) == Some(selector) {
            return;
        }
        self.remove(request);
        let label = required_in(&request.namespace, selector);
        self.by_label.entry(label).or_default().insert(request.clone());
        self.of.insert(request.clone(), selector.clone());
    }

    pub(super) fn remove(&mut self, request: &Request) {
        let Some(selector) = self.of.remove(request) else { return };
        let label = required_in(&request.namespace, &selector);
        if let Some(requests) = self.by_label.get_mut(&label) {
            requests.remove(request);
            if requests.is_empty() {
                self.by_label.remove(&label);
            }
        }
    }

    /// The autoscalers that select one of the pods, sorted.
    pub(super) fn selecting(&self, pods: &[Arc<Pod>]) -> Vec<Request> {
        // Most pods of a target have the same labels.
        let states: BTreeSet<_> =
            pods.iter().map(|pod| (&pod.metadata.namespace, &pod.metadata.labels)).collect();
        let mut found = BTreeSet::new();
        for (namespace, labels) in states {
            let labels = Labels::new(namespace.as_deref(), labels.as_ref());
            let candidates =
                labels.values().into_iter().filter_map(|value| self.by_label.get(&value));
            for request in candidates.flatten() {
                let selects = self.of.get(request).is_some_and(|s| labels.are_selected_by(s));
                if selects {
                    found.insert(request.clone());
                }
            }
        }
        found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn pod(namespace: &str, labels: &[(&str, &str)]) -> Arc<Pod> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.collect()),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    #[test]
    fn finds_autoscalers_by_any_selector_and_forgets_them() {
        let mut selectors = Selectors::default();
        let request = |name: &str| Request::new("a", name);
        for (name, selector) in [
            ("equal", "app=web"),
            ("second", "app=web,tier=front"),
            ("set", "app in (web,db)"),
            ("not", "app!=db"),
            ("other", "app=db"),
            ("everything", ""),
        ] {
            selectors.set(&request(name), &Selector::parse(selector).unwrap());
        }
        selectors.set(&Request::new("b", "elsewhere"), &Selector::parse("app=web").unwrap());
        let selecting = |selectors: &Selectors, pods: &[Arc<Pod>]| -> Vec<String> {
            let found = selectors.selecting(pods);
            found.iter().map(|request| request.name.to_string()).collect()
        };
        let web = pod("a", &[("app", "web")]);
        assert_eq!(
            selecting(&selectors, std::slice::from_ref(&web)),
            ["equal", "everything", "not", "set"]
        );
        let both = [web.clone(), pod("a", &[("app", "web"), ("tier", "front")])];
        assert_eq!(selecting(&selectors, &both), ["equal", "everything", "not", "second", "set"]);
        selectors.set(&request("equal"), &Selector::parse("app=db").unwrap());
        selectors.remove(&request("everything"));
        assert_eq!(selecting(&selectors, &[web]), ["not", "set"]);
        assert!(selecting(&selectors, &[]).is_empty());
    }
}
