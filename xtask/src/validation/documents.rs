//! `cargo xtask documents`: reads discovery and the OpenAPI documents of Kubernetes' own
//! kube-apiserver and of `setpoint up`, and writes how they differ in `docs/documents.md`.
//!
//! Both have the same definitions of custom resources, whose schemas are drawn. Each path and each
//! schema of a document is compared for itself. Left out are descriptions of types and parameters,
//! which come from a published document (`--openapi`), and what says which server it is.

use super::answer::Class;
use super::both::{Sides, both, wait};
use super::custom::schema::Definition;
use super::findings::Report;
use super::page::{self, Page};
use super::random::Random;
use super::text;
use crate::http::{Answer, Connection};
use crate::servers::{Layout, Programs};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The types of answers of aggregated discovery.
const AGGREGATED: [&str; 2] = [
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
];

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many definitions are drawn.
    #[arg(long, default_value_t = 200)]
    definitions: usize,
    /// The seed of the definitions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("documents", Layout::Apart)?;
    let mut sides = [Connection::new(&servers.ours), Connection::new(&servers.original)];
    let groups = define(args, &mut sides)?;
    let mut compared = Compared { sides, report: Report::default() };
    compared.publish(&groups)?;
    compared.discovery()?;
    compared.version_2()?;
    compared.version_3()?;
    let report = compared.report;
    print!("{}", page::listing(&report));
    if !args.no_page && args.programs.is_default() {
        let command = format!(
            "documents --kube-apiserver PATH --etcd PATH --definitions {} --seed {}",
            args.definitions, args.seed
        );
        let page = Page {
            path: "docs/documents.md",
            title: "Discovery and OpenAPI",
            about: "What kube-apiserver and `setpoint up` publish of the built-in kinds and of \
                    the same definitions of custom resources, whose schemas are drawn: discovery of \
                    each group and version, aggregated discovery, and each path and each schema of \
                    the OpenAPI documents of both versions. Left out are descriptions of types and \
                    parameters, which come from a published document (`--openapi`). Parameters that \
                    a document refers to count as if they were written where they are.",
            unit: "parts",
            plugins: page::FEW_PLUGINS,
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

/// Creates the definitions that both take, and returns their group versions.
fn define(args: &Args, sides: &mut Sides) -> Result<Vec<String>> {
    let mut groups = Vec::new();
    for number in 0..args.definitions {
        let definition = Definition::draw(&mut Random::new(args.seed, number), number);
        let path = definition.path();
        let (collection, _) = path.rsplit_once('/').context("a path")?;
        let body = definition.object.to_string();
        let answers = both(sides, |side, _| side.send("POST", collection, body.as_bytes()))?;
        match answers.each_ref().map(|answer| answer.code) {
            [201, 201] => {
                let versions = definition.versions().into_iter();
                groups.extend(versions.map(|version| format!("{}/{version}", definition.group())));
            }
            // The other chore compares what is accepted.
            [201, _] | [_, 201] => _ = both(sides, |side, _| side.send("DELETE", &path, b""))?,
            _ => {}
        }
    }
    Ok(groups)
}

/// The documents are compared part by part.
struct Compared {
    sides: Sides,
    report: Report,
}

impl Compared {
    /// Waits until both publish these group versions.
    fn publish(&mut self, groups: &[String]) -> Result<()> {
        let keys: BTreeSet<String> = groups.iter().map(|group| format!("apis/{group}")).collect();
        for side in &mut self.sides {
            wait(side, "/openapi/v3", |answer| {
                let index: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                keys.iter().all(|key| index["paths"].get(key).is_some())
            })?;
            // The one of version 2 is published at another time.
            let things: Vec<String> = keys.iter().map(|key| format!("\"/{key}/")).collect();
            wait(side, "/openapi/v2", |answer| {
                let whole = String::from_utf8_lossy(&answer.body);
                things.iter().all(|thing| whole.contains(thing))
            })?;
        }
        Ok(())
    }

    /// A document of both; `null` if a server does not have it in this type.
    fn read(&mut self, paths: [&str; 2], accept: &str) -> Result<[Value; 2]> {
        let answers = both(&mut self.sides, |side, at| {
            side.send_as("GET", paths[at], b"", "application/json", accept)
        })?;
        let of = |answer: &Answer| match answer.code {
            200 => serde_json::from_slice(&answer.body).context("a document"),
            406 => Ok(Value::Null),
            _ => bail!("{}: {}", paths[0], text(answer)),
        };
        Ok([of(&answers[0])?, of(&answers[1])?])
    }

    fn discovery(&mut self) -> Result<()> {
        const JSON: &str = "application/json";
        let [_, groups] = self.read(["/apis"; 2], JSON)?;
        let mut paths = vec!["/api".to_owned(), "/apis".to_owned(), "/api/v1".to_owned()];
        for group in groups["groups"].as_array().into_iter().flatten() {
            paths.push(format!("/apis/{}", group["name"].as_str().unwrap_or_default()));
            let versions = group["versions"].as_array().into_iter().flatten();
            let versions = versions.filter_map(|version| version["groupVersion"].as_str());
            paths.extend(versions.map(|version| format!("/apis/{version}")));
        }
        for path in &paths {
            let mut documents = self.read([path, path], JSON)?;
            for document in &mut documents {
                // The address of a server.
                document.as_object_mut().and_then(|all| all.remove("serverAddressByClientCIDRs"));
            }
            self.compare("discovery", path, &documents);
        }
        for (path, accept) in
            ["/api", "/apis"].iter().flat_map(|path| AGGREGATED.map(|accept| (*path, accept)))
        {
            let documents = self.read([path, path], accept)?;
            self.compare("aggregated discovery", path, &documents);
        }
        Ok(())
    }

    fn version_2(&mut self) -> Result<()> {
        let mut documents = self.read(["/openapi/v2"; 2], "application/json")?;
        for document in &mut documents {
            let shared = document["parameters"].take();
            let paths = document["paths"].as_object_mut().context("paths")?;
            paths.values_mut().for_each(|item| inline(item, &shared));
        }
        self.members("path of v2", &documents, "/paths");
        documents.iter_mut().for_each(|document| plain(&mut document["definitions"]));
        self.members("schema of v2", &documents, "/definitions");
        self.rest("v2", documents, &["paths", "definitions", "parameters"]);
        Ok(())
    }

    fn version_3(&mut self) -> Result<()> {
        let indexes = self.read(["/openapi/v3"; 2], "application/json")?;
        let keys = indexes.each_ref().map(|index| {
            let all = index["paths"].as_object().into_iter().flatten();
            all.map(|(key, _)| Value::from(key.as_str())).collect::<Value>()
        });
        self.compare("index of v3", "/openapi/v3", &keys);
        let of = |at: usize, key: &str| indexes[at]["paths"][key]["serverRelativeURL"].as_str();
        for key in keys[1].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let (Some(ours), Some(original)) = (of(0, key), of(1, key)) else { continue };
            let mut documents = self.read([ours, original], "application/json")?;
            for document in &mut documents {
                if let Some(paths) = document["paths"].as_object_mut() {
                    paths.values_mut().for_each(|item| inline(item, &Value::Null));
                }
                plain(&mut document["components"]);
            }
            self.members("path of v3", &documents, "/paths");
            self.members("schema of v3", &documents, "/components/schemas");
            self.rest("v3", documents, &["paths", "components"]);
        }
        Ok(())
    }

    /// Compares the members of an object in both documents.
    fn members(&mut self, what: &'static str, documents: &[Value; 2], pointer: &str) {
        let none = Map::new();
        let of = |at: usize| documents[at].pointer(pointer).and_then(Value::as_object);
        let [ours, original] = [of(0).unwrap_or(&none), of(1).unwrap_or(&none)];
        let names: BTreeSet<&String> = ours.keys().chain(original.keys()).collect();
        for name in names {
            let of = |all: &Map<String, Value>| all.get(name).cloned().unwrap_or_default();
            self.compare(what, name, &[of(ours), of(original)]);
        }
    }

    /// Compares the members of a document that have not been compared.
    fn rest(&mut self, name: &'static str, mut documents: [Value; 2], compared: &[&str]) {
        for document in documents.iter_mut().filter_map(Value::as_object_mut) {
            document.retain(|member, _| !compared.contains(&&**member));
        }
        self.compare("rest of a document", name, &documents);
    }

    fn compare(&mut self, what: &'static str, name: &str, [ours, original]: &[Value; 2]) {
        let class = Class::of_bodies(ours, original);
        // A schema that is in many documents is one class.
        let last = name.rsplit('.').next().unwrap_or_default();
        let difference = class.map(|class| (format!("{what}: {last}"), class));
        let number = self.report.cases;
        self.report.add(what, !original.is_null(), (number, name.to_owned()), difference);
    }
}

/// Writes parameters that a path refers to where they are, by name, and without descriptions.
fn inline(item: &mut Value, shared: &Value) {
    let Some(item) = item.as_object_mut() else { return };
    let operations = item.iter_mut().map(|(name, value)| match name.as_str() {
        "parameters" => Some(value),
        _ => value.get_mut("parameters"),
    });
    for parameters in operations.flatten().filter_map(Value::as_array_mut) {
        for parameter in parameters.iter_mut() {
            let name = parameter["$ref"].as_str();
            if let Some(name) = name.and_then(|name| name.strip_prefix("#/parameters/")) {
                *parameter = shared[name].clone();
            }
            let is_name = parameter["name"] == "name";
            if let Some(members) = parameter.as_object_mut().filter(|_| !is_name) {
                members.remove("description");
            }
        }
        parameters.sort_by_cached_key(|one| format!("{} {}", one["name"], one["in"]));
    }
}

/// Drops descriptions of types and of their fields. What was only a reference beside one is just
/// the reference then.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|name, value| name != "description" || !value.is_string());
            members.values_mut().for_each(plain);
            let only = members.get("allOf").filter(|_| members.len() == 1);
            if let Some([reference]) = only.and_then(Value::as_array).map(Vec::as_slice) {
                *schema = reference.clone();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_count_where_they_are_without_their_descriptions() {
        let shared = json!({"limit-x": {"name": "limit", "in": "query", "description": "How."}});
        let name = json!({"name": "name", "in": "path", "description": "name of the Pod"});
        let mut item = json!({
            "get": {"parameters": [{"$ref": "#/parameters/limit-x"}], "description": "read"},
            "parameters": [{"name": "pretty", "in": "query", "description": "If."}, name],
        });
        inline(&mut item, &shared);
        let expected = json!({
            "get": {"parameters": [{"name": "limit", "in": "query"}], "description": "read"},
            "parameters": [name, {"name": "pretty", "in": "query"}],
        });
        assert_eq!(item, expected);
    }

    #[test]
    fn a_field_that_is_named_description_stays() {
        let mut schema = json!({"description": "A.", "properties": {"description": {"type": "x"}}});
        plain(&mut schema);
        assert_eq!(schema, json!({"properties": {"description": {"type": "x"}}}));
        let mut field = json!({"description": "A.", "allOf": [{"$ref": "#/x"}]});
        plain(&mut field);
        assert_eq!(field, json!({"$ref": "#/x"}));
    }
}
