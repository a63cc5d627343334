//! What both servers allocate and publish: addresses, node ports, the endpoints of `kubernetes`.

use super::{Clients, NAMES, NAMESPACE, eventually, pause};
use crate::servers::PUBLISHED;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Services that each server creates.
const SERVICES_EACH: usize = 40;
/// How long the endpoints are looked at: three rounds of each server.
const PUBLISHED_FOR: Duration = Duration::from_secs(32);

/// Something that both servers have to agree on.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) what: String,
    /// `None`: they agree.
    pub(super) problem: Option<String>,
}

fn fact(what: impl Into<String>, problem: Option<String>) -> Fact {
    Fact { what: what.into(), problem }
}

pub(super) fn compare(clients: &mut Clients) -> Result<Vec<Fact>> {
    let mut facts = numbers(clients)?;
    facts.push(endpoints(clients)?);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let path = format!("{leases}?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver");
    let (_, list) = clients.json(0, "GET", &path, &Value::Null)?;
    let n = list["items"].as_array().map_or(0, Vec::len);
    let problem = (n != 2).then(|| format!("{n} Leases"));
    facts.push(fact("each server has its Lease in `kube-system`", problem));
    Ok(facts)
}

/// Allocates addresses and node ports with both servers at the same time.
fn numbers(clients: &mut Clients) -> Result<Vec<Fact>> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/services");
    let service = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        })
    };
    let mut facts = Vec::new();
    let [original, ours] = &mut clients.servers;
    let created: Vec<Value> = std::thread::scope(|scope| {
        let workers: Vec<_> = [original, ours]
            .into_iter()
            .enumerate()
            .map(|(at, server)| {
                let (path, service) = (&path, &service);
                scope.spawn(move || -> Result<Vec<Value>> {
                    let send = |n: usize| {
                        let body = service(&format!("s{at}-{n}")).to_string();
                        let answer = server.send("POST", path, body.as_bytes())?;
                        Ok(serde_json::from_slice(&answer.body)?)
                    };
                    (0..SERVICES_EACH).map(send).collect()
                })
            })
            .collect();
        let all = workers.into_iter().filter_map(|worker| worker.join().ok());
        all.collect::<Result<Vec<_>>>().map(|all| all.into_iter().flatten().collect())
    })?;
    let of = |pointer: &str| -> BTreeSet<String> {
        created.iter().filter_map(|one| one.pointer(pointer)).map(Value::to_string).collect()
    };
    for (pointer, what) in
        [("/spec/clusterIP", "addresses"), ("/spec/ports/0/nodePort", "node ports")]
    {
        let n = of(pointer).len();
        let wanted = 2 * SERVICES_EACH;
        let problem = (n != wanted).then(|| format!("{n} different ones of {wanted}"));
        facts.push(fact(format!("{what} that both allocate at the same time differ"), problem));
    }
    for owner in [0, 1] {
        let other = 1 - owner;
        let (_, held) = clients.json(owner, "GET", &format!("{path}/s{owner}-0"), &Value::Null)?;
        let wants = |name: &str, pointer: &str| {
            let mut wanted = service(name);
            match pointer {
                "/spec/clusterIP" => {
                    wanted["spec"]["clusterIP"] = held["spec"]["clusterIP"].clone()
                }
                _ => wanted["spec"]["ports"] = held["spec"]["ports"].clone(),
            }
            wanted
        };
        let pointers = [("/spec/clusterIP", "address"), ("/spec/ports/0/nodePort", "node port")];
        for (pointer, what) in pointers {
            let (code, _) = clients.json(other, "POST", &path, &wants("taken", pointer))?;
            let problem = (code != 422).then(|| format!("{code}"));
            let what =
                format!("{} refuses the {what} of a Service of {}", NAMES[other], NAMES[owner]);
            facts.push(fact(what, problem));
        }
        clients.json(other, "DELETE", &format!("{path}/s{owner}-0"), &Value::Null)?;
        for (pointer, what) in pointers {
            let again = eventually(|| {
                let wanted = wants(&format!("again-{owner}-{}", what.replace(' ', "-")), pointer);
                Ok((clients.json(owner, "POST", &path, &wanted)?.0 == 201).then_some(()))
            })?;
            let problem = again.is_none().then(|| "refused".to_owned());
            let what =
                format!("{} gives the {what} again that {} freed", NAMES[owner], NAMES[other]);
            facts.push(fact(what, problem));
        }
    }
    Ok(facts)
}

/// Looks at the endpoints of the Service `kubernetes`.
fn endpoints(clients: &mut Clients) -> Result<Fact> {
    let path = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let (mut seen, mut versions) = (BTreeSet::new(), BTreeSet::new());
    // The servers publish themselves when they start.
    let wanted = json!(PUBLISHED);
    let mut look = |clients: &mut Clients| -> Result<Value> {
        let (_, endpoints) = clients.json(0, "GET", path, &Value::Null)?;
        let subsets = endpoints["subsets"].as_array().into_iter().flatten();
        let all = subsets.flat_map(|subset| subset["addresses"].as_array().into_iter().flatten());
        let addresses: Value = all.map(|address| address["ip"].clone()).collect();
        seen.insert(addresses.to_string());
        versions.insert(endpoints["metadata"]["resourceVersion"].to_string());
        let (_, slice) = clients.json(0, "GET", slices, &Value::Null)?;
        versions.insert(slice["metadata"]["resourceVersion"].to_string());
        Ok(addresses)
    };
    let begun = eventually(|| Ok((look(clients)? == wanted).then_some(())))?;
    let step = Duration::from_millis(500);
    for _ in 0..PUBLISHED_FOR.as_millis() / step.as_millis() {
        look(clients)?;
        pause(step);
    }
    let what = "the endpoints of the Service `kubernetes` have both addresses, and stay";
    let is_there = begun.is_some() && look(clients)? == wanted;
    // Each object may be written once more by the server that starts last.
    let is_calm = is_there && versions.len() <= 4;
    let seen = seen.into_iter().collect::<Vec<_>>().join(", ");
    let problem = (!is_calm).then(|| format!("{} versions: {seen}", versions.len()));
    Ok(fact(what, problem))
}
