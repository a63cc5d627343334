//! Observes the result of a step.

use super::steps::{Act, CRD_PATH, NAMESPACE, NETWORK, Step, network_path};
use super::{Events, Journal};
use kube_client::Client;
use serde_json::Value;
use std::time::Duration;

/// Time between two observations.
pub(super) const PERIOD: Duration = Duration::from_millis(20);

/// An observation.
pub(super) struct Observation {
    pub(super) text: String,
    /// Whether the result is final.
    pub(super) is_settled: bool,
}

/// Observes the result of a step.
pub(super) async fn observe(
    step: &Step,
    client: &Client,
    journal: &Journal,
    events: Events,
) -> Result<Observation, kube_client::Error> {
    Ok(match step.act {
        Act::Start => {
            let text = journal.find(step.expected).unwrap_or_default();
            Observation { is_settled: !text.is_empty(), text }
        }
        Act::Define => get(client, CRD_PATH).await?.map_or_else(nothing, |crd| {
            let text = conditions(&crd, |condition| {
                format!(
                    "{}={} {}",
                    text(condition, "type"),
                    text(condition, "status"),
                    text(condition, "reason")
                )
            });
            Observation { is_settled: text.contains("Established=True"), text }
        }),
        Act::Apply => match get(client, &network_path()).await? {
            Some(network) => network_and_events(client, &network, events).await?,
            None => nothing(),
        },
        Act::Delete => match get(client, &network_path()).await? {
            Some(network) => {
                Observation { text: network["metadata"].to_string(), is_settled: false }
            }
            None => Observation { text: "gone".to_owned(), is_settled: true },
        },
    })
}

fn nothing() -> Observation {
    Observation { text: "nothing".to_owned(), is_settled: false }
}

/// Sends a GET; `None` if the object does not exist.
async fn get(client: &Client, path: &str) -> Result<Option<Value>, kube_client::Error> {
    let request =
        http::Request::get(path).body(Vec::new()).map_err(kube_client::Error::HttpError)?;
    match client.request(request).await {
        Ok(object) => Ok(Some(object)),
        Err(kube_client::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// A Network's status, and the newest event about it.
async fn network_and_events(
    client: &Client,
    network: &Value,
    wanted: Events,
) -> Result<Observation, kube_client::Error> {
    let status = &network["status"];
    let uid = text(&network["metadata"], "uid");
    let ready = conditions(network, |condition| {
        format!(
            "{}={} {}: {}",
            text(condition, "type"),
            text(condition, "status"),
            text(condition, "reason"),
            text(condition, "message")
        )
    });
    let events = get(
        client,
        &format!(
            "/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={NETWORK}"
        ),
    )
    .await?;
    let events = events
        .as_ref()
        .and_then(|events| events["items"].as_array())
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_current = network["metadata"]["generation"] == status["observedGeneration"];
    // The event for the current status, if it has been recorded. Repeated events have the same text
    // and are reported once.
    let event = events
        .iter()
        .find(|event| is_current && status["conditions"][0]["message"] == event["message"]);
    let event = event.map(|event| {
        format!(
            "event {} {}: {}",
            text(event, "type"),
            text(event, "reason"),
            text(event, "message")
        )
    });
    let mut lines = vec![
        format!(
            "generation {}, observed {}: {} with gateway {} on {}",
            network["metadata"]["generation"],
            status["observedGeneration"],
            text(status, "cidr"),
            text(status, "gateway"),
            text(status, "device")
        ),
        ready,
    ];
    let is_settled = match wanted {
        Events::Arrive => {
            lines.push(event.clone().unwrap_or_else(|| "no event".to_owned()));
            is_current && event.is_some()
        }
        Events::MayBeLost => is_current,
    };
    Ok(Observation { text: lines.join("\n").replace(uid, "<uid>"), is_settled })
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or("-")
}

fn conditions(object: &Value, line: impl Fn(&Value) -> String) -> String {
    let conditions =
        object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().map(line).collect::<Vec<_>>().join("\n")
}
