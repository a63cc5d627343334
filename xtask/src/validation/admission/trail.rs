//! What both servers note of requests in their audit logs: the annotations of plugins.

use super::super::answer::Class;
use crate::http::Answer;
use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Annotations that are not about admission, or that differ with who asks and how fast.
const OTHERS: [&str; 2] = ["authorization.k8s.io/", "apiserver.latency.k8s.io/"];

/// A request to both.
#[derive(Debug)]
pub(super) struct Noted {
    /// The number of its case.
    pub(super) number: usize,
    pub(super) judges: &'static str,
    pub(super) about: String,
    pub(super) example: String,
    /// Its audit id at each.
    ids: [String; 2],
}

/// An event, as far as it is compared.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The requests so far.
#[derive(Debug)]
pub(super) struct Trail {
    logs: [PathBuf; 2],
    requests: Mutex<Vec<Noted>>,
}

impl Trail {
    /// `logs`: those of ours and of the original.
    pub(super) fn new(logs: [PathBuf; 2]) -> Self {
        Self { logs, requests: Mutex::default() }
    }

    /// Adds a request.
    pub(super) fn add(
        &self,
        (number, judges): (usize, &'static str),
        about: &str,
        example: &str,
        answers: &[Answer; 2],
    ) -> Result<()> {
        let noted = Noted {
            number,
            judges,
            about: about.to_owned(),
            example: example.to_owned(),
            ids: answers.clone().map(|answer| answer.audit_id),
        };
        self.requests.lock().map_err(|_| anyhow!("a thread panicked"))?.push(noted);
        Ok(())
    }

    /// All requests, with how their annotations differ.
    pub(super) fn compared(&self) -> Result<Vec<(Noted, Option<Class>)>> {
        let requests =
            std::mem::take(&mut *self.requests.lock().map_err(|_| anyhow!("a thread panicked"))?);
        let [mut ours, mut original] = [annotations(&self.logs[0])?, annotations(&self.logs[1])?];
        let compare = |noted: Noted| {
            let [a, b] = &noted.ids;
            let (a, b) =
                (ours.remove(a).unwrap_or_default(), original.remove(b).unwrap_or_default());
            (noted, Class::of_bodies(&a, &b))
        };
        Ok(requests.into_iter().map(compare).collect())
    }
}

/// The annotations of the requests in a log, by audit id.
fn annotations(log: &Path) -> Result<HashMap<String, Value>> {
    let file = File::open(log).with_context(|| format!("open {}", log.display()))?;
    let mut all = HashMap::new();
    for line in BufReader::new(file).lines() {
        let event: Event = serde_json::from_str(&line?)?;
        if event.stage == "ResponseComplete" {
            all.insert(event.id, plain(event.annotations));
        }
    }
    Ok(all)
}

/// Annotations without others. The numbers of hooks count those of other cases, too.
fn plain(annotations: BTreeMap<String, String>) -> Value {
    let is_other = |key: &str| OTHERS.iter().any(|other| key.starts_with(other));
    let mut hooks: BTreeMap<String, usize> = BTreeMap::new();
    let named = |(key, value): (String, String)| {
        let name = match key.split_once("_index_") {
            None => key,
            Some((head, _)) => {
                let count = hooks.entry(head.to_owned()).or_default();
                *count += 1;
                format!("{head}_hook_{count}")
            }
        };
        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
        (name, value)
    };
    let rest = annotations.into_iter().filter(|(key, _)| !is_other(key));
    rest.map(named).collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_of_hooks_are_numbered_anew() {
        let of = |index: &str| {
            let pairs = [
                (format!("patch.webhook.admission.k8s.io/round_0_index_{index}"), r#"{"a":1}"#),
                ("authorization.k8s.io/decision".to_owned(), "allow"),
                ("a/note".to_owned(), "x y"),
            ];
            plain(pairs.into_iter().map(|(key, value)| (key, value.to_owned())).collect())
        };
        let expected = json!({
            "patch.webhook.admission.k8s.io/round_0_hook_1": {"a": 1}, "a/note": "x y",
        });
        assert_eq!((of("3"), of("17")), (expected.clone(), expected));
    }
}
