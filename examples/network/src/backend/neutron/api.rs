//! Neutron's API: lists by filters, creates, updates and deletes, as one project.
//!
//! A list is read in pages and has the session's project only. A token that Neutron refuses is
//! renewed once per request.

use super::http::{Call, HttpError, Sender};
use super::keystone::{Session, Sessions, is_unauthorized};
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Items of one page of a list. The server may send fewer.
const PAGE_ITEMS: usize = 500;
/// Maximum number of pages of one list.
const PAGES_MAX: usize = 200;

/// What is escaped in a part of a path or a value of a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A kind of resource.
pub(super) trait Kind: DeserializeOwned {
    /// Its name in bodies: `network`.
    const ONE: &'static str;
    /// Its name in paths and lists: `networks`.
    const MANY: &'static str;
    /// The fields that are read.
    const FIELDS: &'static [&'static str];

    fn id(&self) -> &str;
}

/// What tells whose a resource is.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Marks {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Network {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) marks: Marks,
    /// The ids of its subnets.
    #[serde(default)]
    pub(super) subnets: Vec<String>,
    #[serde(default)]
    pub(super) created_at: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Subnet {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) marks: Marks,
    pub(super) cidr: String,
    /// `None`: it has no gateway, or one of IPv6.
    #[serde(default, deserialize_with = "ipv4")]
    pub(super) gateway_ip: Option<Ipv4Addr>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Port {
    pub(super) id: String,
    #[serde(flatten)]
    pub(super) marks: Marks,
    /// What it is plugged into; empty: nothing.
    #[serde(default)]
    pub(super) device_id: String,
    #[serde(default)]
    pub(super) device_owner: String,
    #[serde(default)]
    pub(super) fixed_ips: Vec<FixedIp>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct FixedIp {
    pub(super) subnet_id: String,
    pub(super) ip_address: String,
}

fn ipv4<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Ipv4Addr>, D::Error> {
    let text: Option<String> = Deserialize::deserialize(source)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

impl Kind for Network {
    const ONE: &'static str = "network";
    const MANY: &'static str = "networks";
    const FIELDS: &'static [&'static str] =
        &["id", "name", "description", "tags", "subnets", "created_at"];

    fn id(&self) -> &str {
        &self.id
    }
}

impl Kind for Subnet {
    const ONE: &'static str = "subnet";
    const MANY: &'static str = "subnets";
    const FIELDS: &'static [&'static str] =
        &["id", "name", "description", "tags", "cidr", "gateway_ip"];

    fn id(&self) -> &str {
        &self.id
    }
}

impl Kind for Port {
    const ONE: &'static str = "port";
    const MANY: &'static str = "ports";
    const FIELDS: &'static [&'static str] =
        &["id", "name", "description", "tags", "device_id", "device_owner", "fixed_ips"];

    fn id(&self) -> &str {
        &self.id
    }
}

/// Neutron, as one project sees it.
pub(super) struct Api {
    pub(super) sessions: Sessions,
    pub(super) sender: Sender,
}

impl Api {
    /// Sends a request; renews the token if Neutron refuses it. The path is made for a session.
    async fn send(
        &self,
        method: Method,
        path: impl Fn(&Session) -> String,
        body: impl Fn(&Session) -> Option<Value>,
    ) -> Result<(Value, String), HttpError> {
        let may_repeat = method != Method::POST;
        let mut refused = None;
        loop {
            let session = self.sessions.get(&self.sender, refused.as_ref()).await?;
            let (path, body) = (path(&session), body(&session));
            let call =
                Call { method: method.clone(), path: &path, body: body.as_ref(), may_repeat };
            match self.sender.send(&session.neutron, session.token.as_ref(), &call).await {
                Ok(answer) => return Ok((answer.json, session.neutron.url(&path))),
                Err(error) if is_unauthorized(&error) && refused.is_none() => {
                    refused = Some(session);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The project's resources that have these values of fields.
    ///
    /// # Errors
    ///
    /// As of any request, and if the list has more than [`PAGES_MAX`] pages.
    pub(super) async fn list<K: Kind>(
        &self,
        filters: &[(&str, &str)],
    ) -> Result<Vec<K>, HttpError> {
        let mut found: Vec<K> = Vec::new();
        for page in 0.. {
            let marker = found.last().map(|last| last.id().to_owned());
            let path = |session: &Session| {
                let mut path = format!("/{}?project_id={}", K::MANY, escaped(&session.project));
                path.push_str(&format!("&limit={PAGE_ITEMS}&sort_key=id&sort_dir=asc"));
                for (name, value) in filters {
                    path.push_str(&format!("&{name}={}", escaped(value)));
                }
                for field in K::FIELDS {
                    path.push_str(&format!("&fields={field}"));
                }
                if let Some(marker) = &marker {
                    path.push_str(&format!("&marker={}", escaped(marker)));
                }
                path
            };
            let (mut json, url) = self.send(Method::GET, path, |_| None).await?;
            if page >= PAGES_MAX {
                return Err(HttpError::TooMany { url, pages_max: PAGES_MAX });
            }
            let items: Vec<K> = parse(json[K::MANY].take(), &url)?;
            let links = json[format!("{}_links", K::MANY)].take();
            let has_next = links.as_array().into_iter().flatten().any(|link| link["rel"] == "next");
            let is_last = items.is_empty() || !has_next;
            found.extend(items);
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    /// Creates a resource in the project. An error may mean that it was created.
    pub(super) async fn create<K: Kind>(&self, fields: &Value) -> Result<K, HttpError> {
        let body = |session: &Session| {
            let mut fields = fields.clone();
            if session.token.is_none() {
                // Without Keystone, the request has no project by itself.
                fields["project_id"] = json!(session.project);
            }
            Some(json!({ K::ONE: fields }))
        };
        let path = |_: &Session| format!("/{}", K::MANY);
        let (mut json, url) = self.send(Method::POST, path, body).await?;
        parse(json[K::ONE].take(), &url)
    }

    /// Changes some fields of a resource.
    pub(super) async fn update<K: Kind>(&self, id: &str, fields: &Value) -> Result<(), HttpError> {
        let path = |_: &Session| format!("/{}/{}", K::MANY, escaped(id));
        let body = |_: &Session| Some(json!({ K::ONE: fields }));
        self.send(Method::PUT, path, body).await.map(drop)
    }

    /// Adds a tag; one that it has already is no error.
    pub(super) async fn tag<K: Kind>(&self, id: &str, tag: &str) -> Result<(), HttpError> {
        let path = |_: &Session| format!("/{}/{}/tags/{}", K::MANY, escaped(id), escaped(tag));
        self.send(Method::PUT, path, |_| None).await.map(drop)
    }

    /// Deletes a resource; returns whether it was there.
    pub(super) async fn delete<K: Kind>(&self, id: &str) -> Result<bool, HttpError> {
        let path = |_: &Session| format!("/{}/{}", K::MANY, escaped(id));
        match self.send(Method::DELETE, path, |_| None).await {
            Ok(_) => Ok(true),
            Err(error) if error.refusal().is_some_and(|(s, _)| s == StatusCode::NOT_FOUND) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn parse<T: DeserializeOwned>(json: Value, url: &str) -> Result<T, HttpError> {
    serde_json::from_value(json)
        .map_err(|error| HttpError::Malformed { url: url.to_owned(), what: error.to_string() })
}

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}
