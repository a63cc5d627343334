//! Realistic definitions, generated from a seed.
//!
//! Real ones cannot be committed. These have deep objects with descriptions, lists, patterns and
//! enums, and a few recurring parts, as Pod templates are. Sizes follow those of 349 definitions of
//! 25 projects: most have some ten kilobytes, some half a megabyte.

use http::Request;
use kube_client::Client;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Number of definitions: as many as the 25 projects have.
pub(crate) const DEFINITIONS: usize = 349;
/// Number of their groups.
pub(crate) const GROUPS: usize = 25;
/// The collection of definitions.
pub(crate) const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of one version with a schema.
pub(crate) fn definition(group: &str, plural: &str, kind: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Creates an object under a path.
pub(crate) async fn create(client: &Client, path: &str, body: String) -> anyhow::Result<()> {
    let request = Request::post(path).header("content-type", "application/json");
    client.request_text(request.body(body.into_bytes())?).await?;
    Ok(())
}

/// Waits until a definition is established.
pub(crate) async fn established(client: &Client, path: &str) -> anyhow::Result<()> {
    loop {
        let definition: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        let conditions = definition["status"]["conditions"].as_array();
        let is = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        if conditions.is_some_and(|conditions| conditions.iter().any(is)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The path and the body of an object of a generated definition.
pub(crate) fn object(at: usize) -> (String, Value) {
    let (group, plural, kind) = names(at);
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": "a"}, "spec": {}});
    (format!("/apis/{group}/v1/namespaces/default/{plural}"), object)
}
/// The path of a generated definition.
pub(crate) fn path(at: usize) -> String {
    let (group, plural, _) = names(at);
    format!("{PATH}/{plural}.{group}")
}
/// Group, plural name and kind of a generated definition.
fn names(at: usize) -> (String, String, String) {
    (format!("g{}.io", at % GROUPS), format!("things{at}"), format!("Thing{at}"))
}
/// A generated definition.
pub(crate) fn large(at: usize) -> Value {
    let (group, plural, kind) = names(at);
    // One in forty has the maximum size that can be stored with a status; the others vary.
    let size = if at % 40 == 7 { 900_000 } else { 8_000 + (at * 7919) % 130_000 };
    let mut schema = Schema { state: at as u64 + 1, left: size as i64 };
    let mut properties = Map::new();
    while schema.left > 0 {
        properties.insert(format!("part{}", properties.len()), schema.object(0));
    }
    let spec = json!({"type": "object", "description": schema.text(20), "properties": properties});
    let whole = json!({"type": "object", "description": schema.text(30), "properties": {"spec": spec,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    definition(&group, &plural, &kind, whole)
}

/// Generates schemas from a seed until a number of bytes is used up.
struct Schema {
    state: u64,
    left: i64,
}
impl Schema {
    /// xorshift64*.
    fn draw(&mut self, n: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
    fn text(&mut self, n_words: u64) -> String {
        const WORDS: [&str; 12] = [
            "the", "name", "of", "Pods", "that", "are", "selected", "when", "a", "template", "is",
            "optional",
        ];
        let n = 4 + self.draw(n_words);
        let words: Vec<&str> =
            (0..n).map(|_| WORDS[self.draw(WORDS.len() as u64) as usize]).collect();
        words.join(" ")
    }
    fn object(&mut self, depth: u64) -> Value {
        let n = 3 + self.draw(9);
        let properties: Map<String, Value> = (0..n)
            .map(|at| {
                (
                    format!("{}Field{at}", ["a", "label", "container"][at as usize % 3]),
                    self.field(depth + 1),
                )
            })
            .collect();
        self.left -= 60;
        json!({"type": "object", "description": self.text(24), "properties": properties})
    }
    fn field(&mut self, depth: u64) -> Value {
        let description = self.text(24);
        self.left -= 100 + description.len() as i64;
        match self.draw(10) {
            0 | 1 if depth < 9 && self.left > 0 => self.object(depth),
            2 if depth < 9 && self.left > 0 => {
                json!({"type": "array", "description": description, "items": self.object(depth)})
            }
            3 => {
                json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
            }
            4 => {
                json!({"type": "integer", "format": "int32", "description": description, "minimum": 0})
            }
            5 => {
                json!({"type": "string", "description": description, "enum": ["Always", "Never", "IfNotPresent"]})
            }
            6 => {
                json!({"type": "string", "description": description, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63})
            }
            7 => {
                json!({"description": description, "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})
            }
            8 => json!({"type": "boolean", "description": description}),
            _ => json!({"type": "string", "description": description}),
        }
    }
}
