//! Neutron and Keystone in memory: what the back end uses of them. The stories hold it to the real
//! Neutron.

use super::cloud::{Cloud, Wire};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use setpoint::kube_client::Client;
use setpoint::kube_client::client::Body;
use setpoint::object::time::Timestamp;
use setpoint::prelude::{BoxError, Clock};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Items of a page, however many are asked for: as `pagination_max_limit` of a server.
const PAGE_ITEMS: usize = 2;

/// A cloud in memory.
#[derive(Clone)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<State>>);

pub(crate) struct State {
    clock: Clock,
    n_ids: u64,
    items: BTreeMap<&'static str, BTreeMap<String, Value>>,
    quotas: BTreeMap<String, Value>,
    /// Whether tokens are needed.
    pub(crate) keystone: bool,
    /// What the identity of a login must be.
    pub(crate) identity: Value,
    pub(crate) token_life: Duration,
    /// The tokens and their ends.
    pub(crate) tokens: BTreeMap<String, Timestamp>,
    pub(crate) catalog: Value,
    pub(crate) n_logins: usize,
}

type Refusal = (u16, Value);

fn refusal(code: u16, kind: &str, message: impl Into<String>) -> Refusal {
    let (message, detail) = (message.into(), "");
    (code, json!({ "NeutronError": { "type": kind, "message": message, "detail": detail } }))
}

impl Fake {
    pub(crate) fn new(clock: Clock) -> Self {
        let items = ["networks", "subnets", "ports"].map(|kind| (kind, BTreeMap::new()));
        Self(Arc::new(Mutex::new(State {
            clock,
            n_ids: 0,
            items: items.into(),
            quotas: BTreeMap::new(),
            keystone: false,
            identity: Value::Null,
            token_life: Duration::from_secs(3600),
            tokens: BTreeMap::new(),
            catalog: Value::Null,
            n_logins: 0,
        })))
    }

    pub(crate) fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let fake = fake.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let token = head.headers.get("x-auth-token").and_then(|text| text.to_str().ok());
                let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
                let mut state = fake.0.lock().unwrap();
                let answered = state.answer(&head.method, path, query, &body, token);
                let (code, token, json) = answered;
                let answer = Response::builder().status(code);
                let answer = match token {
                    Some(token) => answer.header("x-subject-token", token),
                    None => answer,
                };
                let bytes = if json.is_null() { Vec::new() } else { json.to_string().into() };
                Ok::<_, BoxError>(answer.body(Body::from(bytes))?)
            }
        });
        Client::new(service, "default")
    }

    /// A project of this cloud, without Keystone.
    pub(crate) fn cloud(&self, project: &str) -> Cloud {
        Cloud {
            plain: self.client(),
            wire: Wire::default(),
            endpoint: "http://neutron.test".to_owned(),
            project: project.to_owned(),
        }
    }
}

impl State {
    /// What is there, without ids and names.
    pub(crate) fn outline(&self) -> Value {
        let outline = |(kind, items): (&&'static str, &BTreeMap<String, Value>)| {
            let line = |item: &Value| {
                let ips = item["fixed_ips"].as_array().into_iter().flatten();
                let ips: Vec<&Value> = ips.map(|ip| &ip["ip_address"]).collect();
                let n_tags = item["tags"].as_array().unwrap().len();
                json!([kind, item["cidr"], item["gateway_ip"], ips, n_tags]).to_string()
            };
            let mut lines: Vec<String> = items.values().map(line).collect();
            lines.sort();
            lines
        };
        self.items.iter().flat_map(outline).collect()
    }

    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Value,
        token: Option<&str>,
    ) -> (u16, Option<String>, Value) {
        if path.ends_with("/v3/auth/tokens") {
            return self.log_in(body);
        }
        let now = self.clock.now();
        let is_known = |token| self.tokens.get(token).is_some_and(|ends| *ends > now);
        if self.keystone && !token.is_some_and(is_known) {
            let error = json!({ "error": { "code": 401, "message": "Authentication required" } });
            return (401, None, error);
        }
        let path = path.split_once("/v2.0/").expect("a path of Neutron").1;
        let words: Vec<String> = path.split('/').map(decoded).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, json) = match self.neutron(method, &words, query, body) {
            Ok(answer) | Err(answer) => answer,
        };
        (code, None, json)
    }

    fn log_in(&mut self, body: &Value) -> (u16, Option<String>, Value) {
        self.n_logins += 1;
        if body["auth"]["identity"] != self.identity {
            let message = "The request you have made requires authentication.";
            return (401, None, json!({ "error": { "code": 401, "message": message } }));
        }
        let token = format!("token-{}", self.n_logins);
        let ends = self.clock.now() + self.token_life;
        self.tokens.insert(token.clone(), ends);
        let details = json!({
            "expires_at": ends.rfc3339_micro(),
            "project": { "id": "p1", "name": "demo" },
            "catalog": self.catalog,
        });
        (201, Some(token), json!({ "token": details }))
    }

    fn neutron(
        &mut self,
        method: &Method,
        words: &[&str],
        query: &str,
        body: &Value,
    ) -> Result<Refusal, Refusal> {
        if let ["quotas", project] = words {
            self.quotas.insert((*project).to_owned(), body["quota"].clone());
            return Ok((200, body.clone()));
        }
        let kinds = ["networks", "subnets", "ports"];
        let kind = kinds.into_iter().find(|kind| *kind == words[0]).expect("a kind");
        let one = kind.trim_end_matches('s');
        match (method.as_str(), &words[1..]) {
            ("GET", []) => Ok((200, self.list(kind, query))),
            ("POST", []) => Ok((201, json!({ one: self.create(kind, one, &body[one])? }))),
            ("PUT", [id]) => {
                self.check(kind, id)?;
                let fields = body[one].as_object().cloned().unwrap_or_default();
                if kind == "subnets" {
                    self.check_gateway(&self.items[kind][*id], &body[one])?;
                }
                if kind == "ports" {
                    self.check_address(id, &body[one])?;
                }
                let item = self.items.get_mut(kind).unwrap().get_mut(*id).unwrap();
                fields.into_iter().for_each(|(name, value)| item[name] = value);
                Ok((200, json!({ one: item })))
            }
            ("PUT", [id, "tags", tag]) => {
                // Neutron 29.0.0 answers 500 here.
                self.check(kind, id).map_err(|_| refusal(500, "HTTPInternalServerError", ""))?;
                let item = self.items.get_mut(kind).unwrap().get_mut(*id).unwrap();
                let tags = item["tags"].as_array_mut().unwrap();
                if !tags.contains(&json!(tag)) {
                    tags.push(json!(tag));
                }
                Ok((201, Value::Null))
            }
            ("DELETE", [id, "tags"]) => {
                self.items.get_mut(kind).unwrap().get_mut(*id).unwrap()["tags"] = json!([]);
                Ok((204, Value::Null))
            }
            ("DELETE", [id]) => {
                self.check(kind, id)?;
                self.delete(kind, id)?;
                Ok((204, Value::Null))
            }
            _ => panic!("{method} {words:?}"),
        }
    }

    fn check(&self, kind: &str, id: &str) -> Result<(), Refusal> {
        match self.items[kind].contains_key(id) {
            true => Ok(()),
            false => Err(refusal(404, "NotFound", format!("{kind} {id} could not be found."))),
        }
    }

    fn list(&self, kind: &str, query: &str) -> Value {
        let pairs: Vec<(String, String)> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        let value = |name: &str| pairs.iter().find(|(n, _)| n == name).map(|(_, value)| &**value);
        let matches = |item: &Value| {
            pairs.iter().all(|(name, value)| match &**name {
                "limit" | "marker" | "sort_key" | "sort_dir" | "fields" => true,
                "tags" => item["tags"].as_array().unwrap().contains(&json!(value)),
                "fixed_ips" => {
                    let address = value.strip_prefix("ip_address=").unwrap();
                    let addresses = item["fixed_ips"].as_array().unwrap();
                    addresses.iter().any(|ip| ip["ip_address"] == address)
                }
                name => item[name] == **value,
            })
        };
        let after = value("marker").unwrap_or_default();
        let found = self.items[kind].iter().filter(|(id, item)| ***id > *after && matches(item));
        let mut found: Vec<&Value> = found.map(|(_, item)| item).collect();
        let has_next = found.len() > PAGE_ITEMS;
        found.truncate(PAGE_ITEMS);
        let mut json = json!({ kind: found });
        if has_next {
            json[format!("{kind}_links")] = json!([{ "rel": "next", "href": "" }]);
        }
        json
    }

    fn create(&mut self, kind: &'static str, one: &str, fields: &Value) -> Result<Value, Refusal> {
        let project = fields["project_id"].as_str().unwrap_or("p1").to_owned();
        let quota = self.quotas.get(&project).and_then(|quota| quota[one].as_u64());
        let held = self.items[kind].values().filter(|item| item["project_id"] == *project).count();
        if quota.is_some_and(|quota| held as u64 >= quota) {
            let message = format!("Quota exceeded for resources: ['{one}'].");
            return Err(refusal(409, "OverQuota", message));
        }
        if kind != "networks" {
            self.check("networks", fields["network_id"].as_str().unwrap_or_default())?;
        }
        self.n_ids += 1;
        let id = format!("00000000-0000-4000-8000-{:012}", self.n_ids);
        let created_at = self.clock.now().rfc3339();
        let mut item = json!({
            "id": id, "project_id": project, "created_at": created_at, "tags": [],
            "name": "", "description": "", "device_id": "", "device_owner": "",
        });
        for (name, value) in fields.as_object().unwrap() {
            item[name] = value.clone();
        }
        match kind {
            "networks" => item["subnets"] = json!([]),
            "subnets" => {
                let range: network::subnet::Subnet =
                    item["cidr"].as_str().unwrap().parse().unwrap();
                let overlaps = self.items["subnets"].values().any(|other| {
                    let held: network::subnet::Subnet =
                        other["cidr"].as_str().unwrap().parse().unwrap();
                    other["network_id"] == item["network_id"] && held.overlaps(&range)
                });
                if overlaps {
                    let message = format!("{range} overlaps with another subnet.");
                    return Err(refusal(400, "InvalidInput", message));
                }
                self.check_gateway(&item, &item)?;
                let network = item["network_id"].as_str().unwrap();
                let network = self.items.get_mut("networks").unwrap().get_mut(network).unwrap();
                network["subnets"].as_array_mut().unwrap().push(json!(id));
            }
            _ => {
                if item["fixed_ips"].is_null() {
                    item["fixed_ips"] = json!([]);
                }
                self.check_address(&id, &item)?;
            }
        }
        self.items.get_mut(kind).unwrap().insert(id, item.clone());
        Ok(item)
    }

    /// The gateway must be outside of the pools.
    fn check_gateway(&self, before: &Value, fields: &Value) -> Result<(), Refusal> {
        let gateway = &fields["gateway_ip"];
        let Some(gateway) = gateway.as_str() else { return Ok(()) };
        let gateway: Ipv4Addr = gateway.parse().unwrap();
        let pools = match &fields["allocation_pools"] {
            Value::Null => &before["allocation_pools"],
            pools => pools,
        };
        let address = |value: &Value| value.as_str().unwrap().parse::<Ipv4Addr>().unwrap();
        let is_in =
            |pool: &Value| (address(&pool["start"])..=address(&pool["end"])).contains(&gateway);
        match pools.as_array().into_iter().flatten().any(is_in) {
            true => Err(refusal(409, "GatewayConflictWithAllocationPools", gateway.to_string())),
            false => Ok(()),
        }
    }

    /// An address belongs to one port.
    fn check_address(&self, id: &str, fields: &Value) -> Result<(), Refusal> {
        for ip in fields["fixed_ips"].as_array().into_iter().flatten() {
            let holds = |port: &Value| {
                port["id"] != *id && port["fixed_ips"].as_array().unwrap().contains(ip)
            };
            if self.items["ports"].values().any(holds) {
                let message = format!("IP address {} already allocated", ip["ip_address"]);
                return Err(refusal(409, "IpAddressAlreadyAllocated", message));
            }
        }
        Ok(())
    }

    fn delete(&mut self, kind: &'static str, id: &str) -> Result<(), Refusal> {
        let ports = self.items["ports"].values();
        let user = match kind {
            "networks" => ports.into_iter().find(|port| port["network_id"] == *id),
            "subnets" => ports.into_iter().find(|port| {
                port["fixed_ips"].as_array().unwrap().iter().any(|ip| ip["subnet_id"] == *id)
            }),
            _ => None,
        };
        if let Some(user) = user {
            let in_use = if kind == "networks" { "NetworkInUse" } else { "SubnetInUse" };
            return Err(refusal(409, in_use, format!("port {}", user["id"])));
        }
        self.items.get_mut(kind).unwrap().remove(id);
        if kind == "networks" {
            self.items.get_mut("subnets").unwrap().retain(|_, item| item["network_id"] != *id);
        }
        if kind == "subnets" {
            for network in self.items.get_mut("networks").unwrap().values_mut() {
                network["subnets"].as_array_mut().unwrap().retain(|subnet| *subnet != *id);
            }
        }
        Ok(())
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
}
