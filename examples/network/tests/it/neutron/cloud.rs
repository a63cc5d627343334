//! A cloud as a test sees it: requests by hand, and a wire that logs and breaks the back end's.

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use network::backend::neutron::{Access, DESCRIPTION, Dial};
use network::backend::{Desired, NeutronBackend, Owner};
use serde_json::{Value, json};
use setpoint::kube_client::Client;
use setpoint::kube_client::client::Body;
use setpoint::prelude::{BoxError, Clock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to a request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The server answers this instead.
    Answer(u16, Option<&'static str>, Value),
    /// The server acts, and its answer is lost.
    LoseAnswer,
    /// The request is lost.
    LoseRequest,
    /// The answer takes so long.
    Slow(Duration),
    /// The answer has so many bytes.
    Long(usize),
}

/// The way between a back end and a cloud.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<WireState>>);

#[derive(Default)]
struct WireState {
    /// Every request, as `GET /v2.0/networks`.
    log: Vec<String>,
    /// Faults of the next requests whose line starts with a text.
    faults: VecDeque<(String, Fault)>,
    /// Writes until the wire breaks: the answer of the last one is lost, and all after it.
    writes_left: Option<usize>,
}

impl Wire {
    pub(crate) fn fault(&self, start: &str, fault: Fault) {
        self.0.lock().unwrap().faults.push_back((start.to_owned(), fault));
    }

    /// Breaks after so many writes; `None`: never.
    pub(crate) fn break_after(&self, writes: Option<usize>) {
        self.0.lock().unwrap().writes_left = writes;
    }

    /// The requests since the last call.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().log)
    }

    /// The requests since the last call that are no reads.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        let mut log = self.take_log();
        log.retain(|line| !line.starts_with("GET "));
        log
    }

    fn next(&self, request: &Request<Body>) -> Option<Fault> {
        let mut state = self.0.lock().unwrap();
        let line = format!("{} {}", request.method(), request.uri().path());
        let is_write = request.method() != Method::GET;
        state.log.push(line.clone());
        if let Some(left) = &mut state.writes_left {
            if *left == 0 {
                return Some(Fault::LoseRequest);
            }
            *left -= usize::from(is_write);
            if is_write && *left == 0 {
                return Some(Fault::LoseAnswer);
            }
        }
        let at = state.faults.iter().position(|(start, _)| line.starts_with(start));
        at.and_then(|at| state.faults.remove(at)).map(|(_, fault)| fault)
    }

    /// A client whose requests take this way to another client's server.
    pub(crate) fn client(&self, inner: Client) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (wire, inner) = (wire.clone(), inner.clone());
            async move {
                let fault = wire.next(&request);
                let lost = || BoxError::from("connection reset by peer");
                match fault {
                    None => Ok(inner.send(request).await?),
                    Some(Fault::Answer(code, retry_after, body)) => {
                        let answer = Response::builder().status(code);
                        let answer = retry_after
                            .into_iter()
                            .fold(answer, |answer, after| answer.header("retry-after", after));
                        Ok(answer.body(Body::from(body.to_string().into_bytes()))?)
                    }
                    Some(Fault::LoseAnswer) => {
                        inner.send(request).await?;
                        Err(lost())
                    }
                    Some(Fault::LoseRequest) => Err(lost()),
                    Some(Fault::Slow(time)) => {
                        tokio::time::sleep(time).await;
                        Ok(inner.send(request).await?)
                    }
                    Some(Fault::Long(bytes)) => Ok(Response::new(Body::from(vec![b' '; bytes]))),
                }
            }
        });
        Client::new(service, "default")
    }
}

/// A project of a cloud.
#[derive(Clone)]
pub(crate) struct Cloud {
    /// Reaches the server in any case.
    pub(crate) plain: Client,
    pub(crate) wire: Wire,
    pub(crate) endpoint: String,
    pub(crate) project: String,
}

impl Cloud {
    /// A back end as a new process has it.
    pub(crate) fn backend(&self) -> NeutronBackend {
        let (wire, plain) = (self.wire.clone(), self.plain.clone());
        let dial = Dial::new(move |_| Ok(wire.client(plain.clone())));
        self.backend_over(dial)
    }

    pub(crate) fn backend_over(&self, dial: Dial) -> NeutronBackend {
        let access =
            Access::NoAuth { endpoint: self.endpoint.clone(), project: self.project.clone() };
        NeutronBackend::new(access, dial, Clock::wall(), 1).unwrap()
    }

    /// A request by hand.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(format!("/v2.0{path}"));
        let request = request.header("content-type", "application/json");
        let answer = self.plain.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// The project's resources of a kind: `networks`.
    pub(crate) async fn all(&self, kind: &str) -> Vec<Value> {
        let (mut found, mut marker) = (Vec::new(), String::new());
        loop {
            let path = format!(
                "/{kind}?project_id={}&limit=100&sort_key=id&sort_dir=asc{marker}",
                self.project
            );
            let (status, mut json) = self.ask(Method::GET, &path, None).await;
            assert_eq!(status, StatusCode::OK, "{json}");
            let page = std::mem::take(json[kind].as_array_mut().unwrap());
            if page.is_empty() {
                return found;
            }
            marker = format!("&marker={}", page.last().unwrap()["id"].as_str().unwrap());
            found.extend(page);
        }
    }

    /// The only resource of a kind.
    pub(crate) async fn only(&self, kind: &str) -> Value {
        let mut all = self.all(kind).await;
        assert_eq!(all.len(), 1, "{kind}: {all:#?}");
        all.remove(0)
    }

    /// Creates a resource of a kind (`network`) by hand; returns its id.
    pub(crate) async fn make(&self, kind: &str, mut fields: Value) -> String {
        fields["project_id"] = json!(self.project);
        let body = json!({ kind: fields });
        let (status, json) = self.ask(Method::POST, &format!("/{kind}s"), Some(body)).await;
        assert_eq!(status, StatusCode::CREATED, "{json}");
        json[kind]["id"].as_str().unwrap().to_owned()
    }

    /// Changes a resource by hand.
    pub(crate) async fn change(&self, kind: &str, id: &str, fields: Value) {
        let body = json!({ kind: fields });
        let (status, json) = self.ask(Method::PUT, &format!("/{kind}s/{id}"), Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{json}");
    }

    /// Deletes a resource by hand.
    pub(crate) async fn remove(&self, kind: &str, id: &str) {
        let (status, json) = self.ask(Method::DELETE, &format!("/{kind}s/{id}"), None).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{json}");
    }

    pub(crate) async fn quota(&self, quota: Value) {
        let path = format!("/quotas/{}", self.project);
        let (status, json) = self.ask(Method::PUT, &path, Some(json!({ "quota": quota }))).await;
        assert_eq!(status, StatusCode::OK, "{json}");
    }

    /// Asserts that the project has exactly one complete network: this owner's.
    pub(crate) async fn has_only(&self, owner: &Owner, desired: Desired) {
        let network = self.only("networks").await;
        let subnet = self.only("subnets").await;
        let port = self.only("ports").await;
        let marked = json!([
            format!("setpoint-{}", owner.uid),
            DESCRIPTION,
            [format!("setpoint-uid={}", owner.uid)]
        ]);
        for item in [&network, &subnet, &port] {
            assert_eq!(json!([item["name"], item["description"], item["tags"]]), marked);
        }
        assert_eq!(subnet["network_id"], network["id"]);
        assert_eq!(subnet["cidr"], desired.subnet.to_string());
        assert_eq!(subnet["gateway_ip"], desired.gateway.to_string());
        let reserved =
            json!([{ "subnet_id": subnet["id"], "ip_address": desired.gateway.to_string() }]);
        assert_eq!(port["fixed_ips"], reserved);
    }

    /// Asserts that nothing is left in the project.
    pub(crate) async fn is_empty(&self) {
        for kind in ["networks", "subnets", "ports"] {
            assert_eq!(self.all(kind).await, [] as [Value; 0], "{kind}");
        }
    }
}

pub(crate) fn owner(uid: &str) -> Owner {
    Owner { uid: uid.into(), name: format!("default/{uid}") }
}

pub(crate) fn desired(cidr: &str, gateway: &str) -> Desired {
    Desired { subnet: cidr.parse().unwrap(), gateway: gateway.parse().unwrap() }
}
