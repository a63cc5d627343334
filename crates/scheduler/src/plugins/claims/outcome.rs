//! What claims get on a node, as it is written to their status.

use super::claim::ClaimSpec;
use super::device::{Nodes, Slice};
use super::search::{Picked, Search};
use crate::labels::{items, text};
use rand::RngCore;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `status.allocation` of each claim of a search that has found devices.
pub(super) fn allocations(search: &Search, rng: &mut SmallRng) -> Vec<Value> {
    (0..search.claims.len()).map(|claim| allocation(search, claim, rng)).collect()
}

fn allocation(search: &Search, claim: usize, rng: &mut SmallRng) -> Value {
    let spec = &search.claims[claim].1.spec;
    let picked = &search.picked[claim];
    let results: Vec<Value> =
        picked.iter().map(|picked| result(search, spec, picked, rng)).collect();
    let mut allocation = json!({"devices": {"results": results}});
    let configs = configs(search, spec, claim);
    if !configs.is_empty() {
        allocation["devices"]["config"] = configs.into();
    }
    if let Some(selector) = node_selector(search, picked) {
        allocation["nodeSelector"] = selector;
    }
    allocation
}

fn result(search: &Search, spec: &ClaimSpec, picked: &Picked, rng: &mut SmallRng) -> Value {
    let request = &spec.requests[picked.request];
    let wanted = &request.alternatives[picked.alternative];
    let (slice, device) = search.device(picked);
    let mut result = json!({
        "request": request.name_of(wanted), "driver": &*slice.pool.driver,
        "pool": &*slice.pool.name, "device": &*device.name,
    });
    if wanted.is_admin {
        result["adminAccess"] = true.into();
    }
    if !items(&wanted.written_tolerations).is_empty() {
        result["tolerations"] = wanted.written_tolerations.clone();
    }
    if let Some(share) = &picked.share {
        result["shareID"] = uuid(rng).into();
        if !share.is_empty() {
            let amounts = share.iter().map(|(name, amount)| (name.clone(), amount.to_string()));
            result["consumedCapacity"] = json!(amounts.collect::<BTreeMap<_, _>>());
        }
    }
    result
}

/// A random UUID.
fn uuid(rng: &mut SmallRng) -> String {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}

/// The parameters of the classes, each class once, and then those of the claim.
fn configs(search: &Search, spec: &ClaimSpec, claim: usize) -> Vec<Value> {
    let chosen = search.chosen(claim);
    let name = |request: usize| {
        let of = &spec.requests[request];
        of.name_of(&of.alternatives[chosen[request]])
    };
    // The requests of a class, in the order of the first.
    let mut by_class: Vec<(&str, Vec<String>, &Vec<Value>)> = Vec::new();
    for (request, alternative) in chosen.iter().enumerate() {
        let class = search.class(claim, request, *alternative);
        match by_class.iter_mut().find(|(known, ..)| *known == &*class.name) {
            Some((_, requests, _)) => requests.push(name(request)),
            None => by_class.push((&class.name, vec![name(request)], &class.configs)),
        }
    }
    let mut configs = Vec::new();
    for (_, requests, of_class) in by_class {
        for config in of_class {
            let mut config = config.clone();
            config["source"] = "FromClass".into();
            config["requests"] = json!(requests);
            configs.push(config);
        }
    }
    for config in &spec.configs {
        let requests = items(&config["requests"]);
        // Once for each request that it is for.
        let concerns = |request: &usize| {
            let (own, chosen) = (&spec.requests[*request].name, name(*request));
            requests.iter().any(|name| text(name) == own || text(name) == chosen)
        };
        let n = match requests.is_empty() {
            true => 1,
            false => (0..spec.requests.len()).filter(concerns).count(),
        };
        let mut config = config.clone();
        config["source"] = "FromClaim".into();
        configs.extend(std::iter::repeat_n(config, n));
    }
    configs
}

/// The nodes that can use all of the devices; `None`: all nodes.
fn node_selector(search: &Search, picked: &[Picked]) -> Option<Value> {
    let (mut fields, mut expressions): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for picked in picked {
        let (slice, device): (&Slice, _) = search.device(picked);
        let nodes = slice.nodes_of(device);
        if device.binds_to_node || matches!(nodes, Nodes::Named(_)) {
            let field = json!({
                "key": "metadata.name", "operator": "In", "values": [&*search.node.name],
            });
            return Some(json!({"nodeSelectorTerms": [{"matchFields": [field]}]}));
        }
        if let Nodes::Selected(_, written) = nodes {
            // There is one term.
            let term = &written["nodeSelectorTerms"][0];
            for (member, all) in
                [("matchFields", &mut fields), ("matchExpressions", &mut expressions)]
            {
                for requirement in items(&term[member]) {
                    if !all.contains(requirement) {
                        all.push(requirement.clone());
                    }
                }
            }
        }
    }
    let mut term = json!({});
    if !fields.is_empty() {
        term["matchFields"] = fields.into();
    }
    if !expressions.is_empty() {
        term["matchExpressions"] = expressions.into();
    }
    let is_empty = term.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty).then(|| json!({"nodeSelectorTerms": [term]}))
}
