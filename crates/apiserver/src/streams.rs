//! The streams of pods: from a request to the node agent or the kubelet that serves it.
//!
//! # Theory
//!
//! | subresource | protocol | module |
//! |---|---|---|
//! | `log` | an answer that goes on | this one |
//! | `exec`, `attach` | WebSocket: the first byte of a message is its channel | `channels` |
//! | `exec`, `attach` | SPDY: a stream per channel | `spdy` |
//! | `portforward` | SPDY, over an upgraded connection or inside a WebSocket | `spdy`, `forward` |
//! | `portforward` | WebSocket: the first byte of a message is its channel | `forward` |
//!
//! A node agent sees plain streams of bytes. A kubelet gets the client's request (`kubelet`).
//!
//! Every stream ends with its connection, and with the server. `limits` counts them.

mod channels;
mod containers;
mod forward;
mod kubelet;
mod limits;
mod options;
mod spdy;

pub(crate) use limits::{Slot, Slots};

use crate::body::Body;
use crate::connector::Connector;
use crate::location::Locator;
use crate::node_agent::{ContainerRef, LogOptions, NodeAgent, PodRef};
use crate::observe::Observation;
use crate::query::Query;
use crate::respond;
use crate::websocket::Upgrade;
use futures::StreamExt as _;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt as _;
use setpoint_object::time::Timestamp;
use setpoint_registry::{Feature, Identity, Registry, Subresource};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use tokio_util::sync::CancellationToken;

/// The protocols of `exec` and `attach`, the newest first.
const CHANNELS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// The protocol of `portforward`.
const FORWARD: &str = "portforward.k8s.io";
/// The same inside a WebSocket.
const FORWARD_TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// `portforward` over the channels of a WebSocket, also of clients that offer no protocol.
const FORWARD_CHANNELS: &str = "v4.channel.k8s.io";

/// The agents of a server.
#[derive(Clone, Default)]
pub(crate) struct Agents {
    pub(crate) list: Vec<Arc<dyn NodeAgent>>,
    /// What reaches kubelets, pods and Services; `None`: nothing does.
    pub(crate) connector: Option<Arc<dyn Connector>>,
    pub(crate) slots: Arc<Slots>,
    /// Which of several endpoints of a Service is the next one.
    pub(crate) turn: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} node agents", self.list.len())
    }
}

impl Agents {
    /// Whether a subresource of pods is a stream that an agent may serve, or a log, which may be
    /// that of a pod without a node.
    pub(crate) fn may_serve(&self, subresource: &Subresource) -> bool {
        use Subresource::{Attach, Exec, Log, PortForward};
        match subresource {
            Log => true,
            Attach | Exec | PortForward => !self.list.is_empty() || self.connector.is_some(),
            _ => false,
        }
    }

    /// What finds the peers of connections; `None`: nothing reaches them.
    pub(crate) fn locator<'a>(&'a self, registry: &'a Registry) -> Option<Locator<'a>> {
        let connector = self.connector.as_deref()?;
        Some(Locator { registry, connector, turn: &self.turn })
    }

    /// The agent of a node.
    pub(crate) fn of(&self, node: &str) -> Option<&Arc<dyn NodeAgent>> {
        self.list.iter().find(|agent| agent.serves(node))
    }
}

/// A request for a stream of a pod.
pub(crate) struct PodStream<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) identity: &'a Identity,
    pub(crate) observation: &'a Arc<Observation>,
    pub(crate) agents: &'a Agents,
    pub(crate) drain: &'a CancellationToken,
    pub(crate) parts: &'a Parts,
    pub(crate) query: &'a Query,
    pub(crate) now: Timestamp,
    pub(crate) pod: &'a Value,
}

impl PodStream<'_> {
    /// The answer; `None`: neither an agent nor a kubelet serves the pod's node.
    ///
    /// # Errors
    ///
    /// Invalid options, containers that the pod does not have, and errors of the agent or the
    /// kubelet.
    pub(crate) async fn answer(
        &self,
        subresource: &Subresource,
    ) -> Result<Option<Response<Body>>, ApiError> {
        let node = self.pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() && *subresource == Subresource::Log {
            return self.no_log().map(Some);
        }
        let Some(agent) = self.agents.of(node) else {
            return self.at_kubelet(subresource, node).await;
        };
        let answer = match subresource {
            Subresource::Log => self.log(agent).await,
            Subresource::PortForward => self.forward(agent.clone()),
            _ => self.run(agent.clone(), *subresource == Subresource::Attach),
        };
        answer.map(Some)
    }

    fn pod_ref(&self) -> PodRef {
        PodRef {
            namespace: self.pod.namespace().to_owned(),
            name: self.pod.name().to_owned(),
            uid: self.pod.uid().to_owned(),
            node: self.pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// Counts a stream. The request lasts as long as the value.
    fn slot(&self, pod: &PodRef) -> Result<(Slot, Arc<Observation>), ApiError> {
        Ok((self.agents.slots.take(pod, self.identity)?, self.observation.clone()))
    }

    fn container(&self) -> Result<ContainerRef, ApiError> {
        let container = containers::chosen(self.pod, self.query.text("container"))?;
        Ok(ContainerRef { pod: self.pod_ref(), container })
    }

    fn log_options(&self) -> Result<LogOptions, ApiError> {
        options::log(self.query, self.pod.name(), self.now, self.has_log_streams())
    }

    /// Whether a log may be of one output.
    fn has_log_streams(&self) -> bool {
        self.registry.features().is_on(Feature::PodLogsQuerySplitStreams)
    }

    /// The log of a pod that no node has: nothing yet, which is no failure.
    fn no_log(&self) -> Result<Response<Body>, ApiError> {
        self.log_options()?;
        self.container()?;
        Ok(respond::empty(StatusCode::NO_CONTENT))
    }

    async fn log(&self, agent: &Arc<dyn NodeAgent>) -> Result<Response<Body>, ApiError> {
        let options = self.log_options()?;
        let container = self.container()?;
        if !options.previous {
            containers::check_started(self.pod, &container.container)?;
        }
        let slot = self.slot(&container.pod)?;
        let lines = agent.logs(container, options).await?;
        let lines = lines.take_until(self.drain.clone().cancelled_owned());
        // The stream counts until its answer is written, or the client leaves.
        let lines = lines.inspect(move |_| _ = &slot);
        let mut response = Response::new(Body::stream(lines));
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        Ok(response)
    }

    /// `exec` and `attach`.
    fn run(&self, agent: Arc<dyn NodeAgent>, is_attach: bool) -> Result<Response<Body>, ApiError> {
        let wanted = options::run(self.query, is_attach)?;
        let container = self.container()?;
        containers::check_running(self.pod, &container.container)?;
        let slot = self.slot(&container.pod)?;
        let call = channels::Call { agent, container, wanted, is_attach };
        let drain = self.drain.clone();
        if let Some(upgrade) = Upgrade::of(self.parts) {
            let Some(protocol) = upgrade.offered(&CHANNELS) else {
                return Err(no_protocol(&CHANNELS));
            };
            return Ok(upgrade.switch(Some(protocol), async move |io| {
                let wanted = call.wanted.clone();
                let run = |streams| call.outcome(streams);
                ended(drain, channels::websocket(io, wanted, is_attach, run)).await;
                drop(slot);
            }));
        }
        let Some(upgrade) = spdy::Upgrade::of(self.parts) else { return Err(no_upgrade()) };
        let Some(protocol) = upgrade.offered(&CHANNELS) else {
            return Err(no_protocol(&CHANNELS));
        };
        Ok(upgrade.switch(protocol, async move |io| {
            ended(drain, spdy::run(io, |streams| channels::over_spdy(streams, call))).await;
            drop(slot);
        }))
    }

    fn forward(&self, agent: Arc<dyn NodeAgent>) -> Result<Response<Body>, ApiError> {
        containers::check_not_over(self.pod)?;
        let (pod, drain) = (self.pod_ref(), self.drain.clone());
        let (slots, identity) = (self.agents.slots.clone(), self.identity.clone());
        let slot = self.slot(&pod)?;
        let target = forward::Target { agent, pod, identity, slots };
        if let Some(upgrade) = Upgrade::of(self.parts) {
            if let Some(protocol) = upgrade.offered(&[FORWARD_TUNNEL]) {
                return Ok(upgrade.switch(Some(protocol), async move |io| {
                    ended(drain, forward::tunnel(io, target)).await;
                    drop(slot);
                }));
            }
            let protocol = upgrade.offered(&[FORWARD_CHANNELS]);
            if protocol.is_none() && upgrade.offers_any() {
                return Err(no_protocol(&[FORWARD_TUNNEL, FORWARD_CHANNELS]));
            }
            let ports = options::ports(self.query)?;
            return Ok(upgrade.switch(protocol, async move |io| {
                ended(drain, forward::channels(io, target, ports)).await;
                drop(slot);
            }));
        }
        let Some(upgrade) = spdy::Upgrade::of(self.parts) else { return Err(no_upgrade()) };
        let Some(protocol) = upgrade.offered(&[FORWARD]) else {
            return Err(no_protocol(&[FORWARD]));
        };
        Ok(upgrade.switch(protocol, async move |io| {
            ended(drain, spdy::run(io, |streams| forward::serve(streams, target))).await;
            drop(slot);
        }))
    }
}

/// Runs a conversation until it ends or the server stops.
async fn ended(drain: CancellationToken, conversation: impl Future<Output = std::io::Result<()>>) {
    tokio::select! {
        // Cancel safe: the connection ends.
        ended = conversation => if let Err(error) = ended {
            tracing::debug!(error = chain(&error), "a stream of a pod broke");
        },
        () = drain.cancelled() => {}
    }
}

fn no_upgrade() -> ApiError {
    ApiError::bad_request("Upgrade request required")
}

fn no_protocol(known: &[&str]) -> ApiError {
    ApiError::bad_request(format!("unable to upgrade: the known protocols are {known:?}"))
}
