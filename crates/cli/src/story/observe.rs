//! Looking at what came of a step.

use super::steps::{Act, CRD_PATH, NAMESPACE, NETWORK, Step, network_path};
use super::{Events, Journal};
use kube_client::Client;
use serde_json::Value;
use std::time::Duration;

/// How long between two looks.
pub(super) const PERIOD: Duration = Duration::from_millis(20);

/// What is seen.
pub(super) struct View {
    pub(super) text: String,
    /// Nothing more will come of the step.
    pub(super) is_settled: bool,
}

/// Looks at what a step is about.
pub(super) async fn at(
    step: &Step,
    client: &Client,
    journal: &Journal,
    events: Events,
) -> Result<View, kube_client::Error> {
    Ok(match step.act {
        Act::Begin => {
            let text = journal.heard(step.expected).unwrap_or_default();
            View { is_settled: !text.is_empty(), text }
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
            View { is_settled: text.contains("Established=True"), text }
        }),
        Act::Apply => match get(client, &network_path()).await? {
            Some(network) => network_and_events(client, &network, events).await?,
            None => nothing(),
        },
        Act::Delete => match get(client, &network_path()).await? {
            Some(network) => View { text: network["metadata"].to_string(), is_settled: false },
            None => View { text: "gone".to_owned(), is_settled: true },
        },
    })
}

fn nothing() -> View {
    View { text: "nothing".to_owned(), is_settled: false }
}

/// A GET; `None` when there is no such object.
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
) -> Result<View, kube_client::Error> {
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
    let judged = network["metadata"]["generation"] == status["observedGeneration"];
    // The event about the present judgement, if it has been recorded: there may be several of one
    // text, told as one.
    let told = events
        .iter()
        .find(|event| judged && status["conditions"][0]["message"] == event["message"]);
    let event = told.map(|event| {
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
            judged && event.is_some()
        }
        Events::MayBeLost => judged,
    };
    Ok(View { text: lines.join("\n").replace(uid, "<uid>"), is_settled })
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or("-")
}

fn conditions(object: &Value, line: impl Fn(&Value) -> String) -> String {
    let conditions =
        object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().map(line).collect::<Vec<_>>().join("\n")
}
