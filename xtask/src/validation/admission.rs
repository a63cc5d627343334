//! `cargo xtask admission`: has Kubernetes' own kube-apiserver and `setpoint up` judge the same
//! requests by the same policies, quotas and ranges, and writes how the answers differ in
//! `docs/admission.md`.
//!
//! A case has a namespace of its own, with drawn policies, webhooks, quotas or ranges, or with
//! annotations that plugins of pods look at. A dozen drawn writes follow, most of them for real. A
//! case ends at the first difference of what is accepted, as the servers have other objects then.
//! The seed and the number of a case say all of it.

mod account;
mod expression;
mod hooks;
mod policy;
mod request;
mod trail;
mod webhook;

use super::answer::Class;
use super::both::{Shown, Sides, both};
use super::findings::{Findings, on_numbers};
use super::objects;
use super::page::{self, Page};
use super::random::Random;
use super::scrub::{scrub, without_chance_in_items};
use super::text;
use super::write::Write;
use crate::servers::{Layout, Programs};
use anyhow::{Result, ensure};
use hooks::{Hooks, Reply};
use policy::Form;
use request::{Drawer, Names, Request};
use serde_json::{Value, json};
use std::time::Duration;
use trail::{Noted, Trail};

/// How long both servers have to take note of a case: kube-apiserver looks at policies once in a
/// second.
const NOTED: Duration = Duration::from_secs(3);
/// How many requests a case has.
const REQUESTS: usize = 12;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many cases.
    #[arg(long, default_value_t = 3_000)]
    cases: usize,
    /// The seed of the cases.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the case with this number, with both servers' answers. May be repeated.
    #[arg(long)]
    case: Vec<usize>,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
    /// How many cases run at once.
    #[arg(long, default_value_t = 48)]
    connections: usize,
}

/// An object that is there before the requests of a case.
#[derive(Clone, Debug)]
struct SetUp {
    path: String,
    body: Value,
    /// What is written to its status.
    status: Option<Value>,
}

impl SetUp {
    fn new(path: String, body: Value) -> Self {
        Self { path, body, status: None }
    }

    /// The path of the object.
    fn object(&self) -> String {
        format!("{}/{}", self.path, self.body["metadata"]["name"].as_str().unwrap_or_default())
    }

    /// The resource.
    fn resource(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is about other namespaces, too, and goes with its case.
    fn is_everywhere(&self) -> bool {
        !self.path.contains("/namespaces/")
    }
}

/// What judges the requests of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judges {
    ValidatingPolicies,
    MutatingPolicies,
    Webhooks,
    Quotas,
    Ranges,
    PluginsOfPods,
}

impl Judges {
    fn draw(random: &mut Random) -> Self {
        match random.below(100) {
            0..28 => Self::ValidatingPolicies,
            28..50 => Self::MutatingPolicies,
            50..70 => Self::Webhooks,
            70..82 => Self::Quotas,
            82..91 => Self::Ranges,
            _ => Self::PluginsOfPods,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ValidatingPolicies => "validating policies",
            Self::MutatingPolicies => "mutating policies",
            Self::Webhooks => "webhooks",
            Self::Quotas => "quotas",
            Self::Ranges => "ranges",
            Self::PluginsOfPods => "plugins of pods",
        }
    }

    /// How many of a hundred requests are about pods.
    fn pods(self) -> usize {
        match self {
            Self::ValidatingPolicies | Self::MutatingPolicies | Self::Webhooks => 25,
            Self::Quotas => 50,
            Self::Ranges => 75,
            Self::PluginsOfPods => 80,
        }
    }
}

/// A drawn case.
#[derive(Debug)]
struct Case {
    judges: Judges,
    namespace: String,
    set_up: Vec<SetUp>,
    /// What its webhooks answer.
    replies: Vec<Reply>,
    requests: Vec<Request>,
}

fn drawn(seed: u64, number: usize) -> Case {
    let random = &mut Random::new(seed, number);
    let namespace = format!("a-{number}");
    let (mut labels, mut annotations) = (json!({}), json!({}));
    if random.percent(60) {
        labels["env"] = ["prod", "test"][random.below(2)].into();
    }
    let (mut rest, mut replies) = (Vec::new(), Vec::new());
    let judges = Judges::draw(random);
    match judges {
        Judges::ValidatingPolicies => {
            rest.extend(policy::draw(random, Form::Validating, &namespace));
        }
        Judges::MutatingPolicies => {
            rest.extend(policy::draw(random, Form::Mutating, &namespace));
            if random.percent(25) {
                rest.extend(policy::draw(random, Form::Validating, &namespace));
            }
        }
        Judges::Webhooks => {
            (rest, replies) = webhook::draw(random, &namespace);
            if random.percent(15) {
                rest.extend(policy::draw(random, Form::Mutating, &namespace));
            }
        }
        Judges::Quotas => {
            rest.extend(account::quotas(random, &namespace));
            if random.percent(25) {
                rest.extend(account::ranges(random, &namespace));
            }
        }
        Judges::Ranges => rest.extend(account::ranges(random, &namespace)),
        Judges::PluginsOfPods => {
            let (more, notes) = account::of_pods(random);
            for (name, value) in more.as_object().into_iter().flatten() {
                labels[name] = value.clone();
            }
            annotations = notes;
        }
    }
    let object = json!({
        "metadata": {"name": namespace, "labels": labels, "annotations": annotations},
    });
    let mut set_up = vec![SetUp::new("/api/v1/namespaces".into(), object)];
    // Policies come last, as they judge what comes after them.
    let (last, first): (Vec<_>, Vec<_>) = rest.into_iter().partition(SetUp::is_everywhere);
    set_up.extend(first.into_iter().chain(last));
    let names = match judges {
        // What is there already is counted by the original.
        Judges::Quotas => Names::New,
        _ => Names::Few,
    };
    let pods = judges.pods();
    let mut drawer = Drawer { random, namespace: &namespace, names, pods };
    let mut requests: Vec<Request> = (0..REQUESTS).map(|number| drawer.draw(number)).collect();
    if judges == Judges::Webhooks {
        // Reviews have names that were made by chance.
        for request in
            requests.iter_mut().filter(|one| !one.body["metadata"]["generateName"].is_null())
        {
            request.body["metadata"] = json!({"name": "a"});
        }
    }
    Case { judges, namespace, set_up, replies, requests }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("admission", Layout::Admitting)?;
    prepare(&mut servers.connect())?;
    let hooks = Hooks::start()?;
    let trail = Trail::new(servers.audit_logs.clone());
    for number in &args.case {
        println!("\ncase {number}");
        let case = drawn(args.seed, *number);
        Play { number: *number, case: &case, hooks: &hooks, trail: &trail, findings: None }
            .run(&mut servers.connect())?;
    }
    if !args.case.is_empty() {
        wait_until_noted();
        for (noted, class) in trail.compared()? {
            if let Some(class) = class {
                println!("{}\n  annotations: {class:?}", noted.example);
            }
        }
        return Ok(());
    }
    let findings = Findings::default();
    on_numbers(&servers, args.connections, args.cases, |number, sides| {
        let case = drawn(args.seed, number);
        Play { number, case: &case, hooks: &hooks, trail: &trail, findings: Some(&findings) }
            .run(sides)
    })?;
    wait_until_noted();
    for (noted, class) in trail.compared()? {
        let Noted { number, judges, about, example, .. } = noted;
        if let Some(class) = class {
            let key = (format!("admission: {judges}: audit of {about}"), class);
            findings.differ(judges, (number, example), key)?;
        }
    }
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if !args.no_page && args.programs.is_default() {
        let command = format!(
            "admission --kube-apiserver PATH --etcd PATH --cases {} --seed {}",
            args.cases, args.seed
        );
        let page = Page {
            path: "docs/admission.md",
            title: "What admission plugins do",
            about: "The same requests to kube-apiserver and to `setpoint up`, which judge them by \
                    the same objects. A case has a namespace with a validating or a mutating \
                    policy, its binding and its parameters, with webhooks, with quotas, with ranges, or with \
                    annotations and labels for the plugins of pods; expressions, selectors, rules \
                    and amounts are drawn, right and odd ones. Then objects of some kinds are \
                    created, updated, patched, applied, deleted, scaled, evicted, bound and \
                    resized. Compared are code, reason, causes, message, warnings, the reviews that webhooks are sent, the annotations in the audit log, the object with \
                    `managedFields`, and what the quotas have counted, without times, uids and \
                    what else is made by chance. A case ends at the first \
                    difference of what is accepted.",
            unit: "requests",
            plugins: "Both with all plugins but the one that mounts tokens, and with some that are off by default",
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

/// Gives both servers what all cases need.
fn prepare(sides: &mut Sides) -> Result<()> {
    let class = |name: &str, value: i64| json!({"metadata": {"name": name}, "value": value});
    let storage = |name: &str| json!({"metadata": {"name": name}, "provisioner": "example.com/a"});
    let thin = json!({
        "metadata": {"name": "thin"}, "handler": "thin",
        "overhead": {"podFixed": {"cpu": "10m", "memory": "8Mi"}},
        "scheduling": {"nodeSelector": {"thin": "yes"}},
    });
    let objects = [
        ("/apis/scheduling.k8s.io/v1/priorityclasses", class("low", 1)),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", class("high", 1_000)),
        ("/apis/storage.k8s.io/v1/storageclasses", storage("fast")),
        ("/apis/storage.k8s.io/v1/storageclasses", storage("slow")),
        ("/apis/node.k8s.io/v1/runtimeclasses", thin),
        ("/api/v1/namespaces", json!({"metadata": {"name": "other"}})),
    ];
    for side in sides.iter_mut() {
        for (path, object) in &objects {
            let answer = side.send("POST", path, object.to_string().as_bytes())?;
            ensure!(answer.code == 201, "{path}: {}", text(&answer));
        }
    }
    objects::define_shapes(sides)?;
    // The original looks at kinds of parameters as long as a policy has them.
    for number in 0..policy::PARAM_KINDS.len() {
        for form in [Form::Validating, Form::Mutating] {
            for one in policy::of_nobody(form, number) {
                for side in sides.iter_mut() {
                    let answer = side.send("POST", &one.path, one.body.to_string().as_bytes())?;
                    ensure!(answer.code == 201, "{}: {}", one.path, text(&answer));
                }
            }
        }
    }
    Ok(())
}

/// A case that is played. Without findings it shows each request and both answers.
struct Play<'p> {
    number: usize,
    case: &'p Case,
    hooks: &'p Hooks,
    trail: &'p Trail,
    findings: Option<&'p Findings>,
}

impl Play<'_> {
    fn run(&self, sides: &mut Sides) -> Result<()> {
        let Case { namespace, set_up, replies, .. } = self.case;
        self.hooks.begin(namespace, replies);
        if self.set_up(sides)? {
            wait_until_noted();
            self.judge(sides)?;
        }
        for one in set_up.iter().skip(1).filter(|one| one.is_everywhere()) {
            both(sides, |side, _| side.send("DELETE", &one.object(), b""))?;
        }
        self.hooks.end(namespace);
        Ok(())
    }

    /// Makes the objects of a case. Returns whether both servers took the same.
    fn set_up(&self, sides: &mut Sides) -> Result<bool> {
        for one in &self.case.set_up {
            let body = one.body.to_string().replace(webhook::URL, &self.hooks.url);
            let body = body.replace(webhook::BUNDLE, &self.hooks.bundle);
            let answers = both(sides, |side, _| side.send("POST", &one.path, body.as_bytes()))?;
            let shown = Shown::of(answers, &one.body, None);
            let about = format!("create of {}", one.resource());
            let example = format!("POST {} {}", one.path, one.body);
            self.count(&about, &shown, &example)?;
            if let Some(class) = shown.differs() {
                self.differ(&about, &shown, &example, class)?;
                return Ok(false);
            }
            if let Some(status) = &one.status {
                let patch = json!({"status": status}).to_string();
                let path = format!("{}/status", one.object());
                both(sides, |side, _| side.send("PATCH", &path, patch.as_bytes()))?;
            }
        }
        Ok(true)
    }

    /// Sends the requests of a case.
    fn judge(&self, sides: &mut Sides) -> Result<()> {
        let namespace = &self.case.namespace;
        let quotas = format!("/api/v1/namespaces/{namespace}/resourcequotas");
        let is_counted = self.case.set_up.iter().any(|one| one.path == quotas);
        for request in &self.case.requests {
            let Request { write, path, body, resource } = request;
            let bytes = if body.is_null() { String::new() } else { body.to_string() };
            let answers = both(sides, |side, at| {
                self.hooks.turn(namespace, at);
                let sent = write.content_type();
                side.send_as(write.method(), path, bytes.as_bytes(), sent, "application/json")
            })?;
            let shown = Shown::of(answers.map(without_chance_in_items), &asked(request), None);
            let about = format!("{} of {resource}", write.name());
            let example = format!("{} {path} {bytes}", write.method());
            self.count(&about, &shown, &example)?;
            let mut class = shown.differs();
            let mut what = about.clone();
            // What both refuse leaves the objects as they were.
            let mut is_over = class.is_some() && shown.are_accepted().contains(&true);
            let [ours, original] = self.hooks.take(namespace).map(reviewed);
            if class.is_none() {
                class = Class::of_bodies(&ours, &original);
                what = format!("reviews of {about}");
                if self.findings.is_none() && class.is_some() {
                    println!("  ours:     {ours}\n  original: {original}");
                }
            }
            if class.is_none() && is_counted {
                let answers = both(sides, |side, _| side.send("GET", &quotas, b""))?;
                let [ours, original] = answers.map(|answer| used(&answer.body));
                class = Class::of_bodies(&ours, &original);
                what = format!("quotas after {about}");
                is_over |= class.is_some();
            }
            match class {
                Some(class) => self.differ(&what, &shown, &example, class)?,
                None => {
                    let judges = (self.number, self.case.judges.name());
                    self.trail.add(judges, &about, &example, &shown.answers)?;
                }
            }
            if is_over {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Counts a request, or shows it.
    fn count(&self, about: &str, shown: &Shown, example: &str) -> Result<()> {
        let [_, is_accepted] = shown.are_accepted();
        match self.findings {
            Some(findings) => {
                let judges = self.case.judges.name();
                findings.add(judges, is_accepted, (self.number, example.to_owned()), None)?;
            }
            None => {
                let codes: Vec<u16> = shown.answers.iter().map(|answer| answer.code).collect();
                println!("{about}: {example}\n  {codes:?}");
            }
        }
        Ok(())
    }

    /// Counts a difference, or shows it.
    fn differ(&self, what: &str, shown: &Shown, example: &str, class: Class) -> Result<()> {
        let judges = self.case.judges.name();
        match self.findings {
            Some(findings) => {
                let key = (format!("admission: {judges}: {what}"), class);
                findings.differ(judges, (self.number, example.to_owned()), key)?;
            }
            None => {
                for answer in &shown.answers {
                    println!("  {:?} {}", answer.warnings, String::from_utf8_lossy(&answer.body));
                }
                println!("  {what}: {class:?}");
            }
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
fn wait_until_noted() {
    std::thread::sleep(NOTED);
}

/// The reviews that webhooks were sent, without who asks and what is made by chance.
///
/// The original sends one again when its cache was behind, and a second one, in between, for a Pod
/// that goes at once.
fn reviewed(reviews: Vec<Value>) -> Value {
    let mut all = Value::from(reviews);
    for review in all.as_array_mut().into_iter().flatten() {
        if let Some(request) = review["review"]["request"].as_object_mut() {
            request.remove("uid");
            request.remove("userInfo");
        }
    }
    scrub(&mut all);
    if let Some(list) = all.as_array_mut() {
        list.retain(|one| !is_in_between(&one["review"]["request"]));
        list.dedup();
    }
    all
}

/// Whether a delete is asked about that has begun and will not wait.
fn is_in_between(request: &Value) -> bool {
    request["operation"] == "DELETE"
        && request["options"]["gracePeriodSeconds"] == 0
        && !request["oldObject"]["metadata"]["deletionTimestamp"].is_null()
}

/// What the server's answer is compared with: the object that the request names.
fn asked(request: &Request) -> Value {
    match request.write {
        Write::Json => Value::Null,
        _ => request.body.clone(),
    }
}

/// What quotas have counted, by their names.
fn used(list: &[u8]) -> Value {
    let list: Value = serde_json::from_slice(list).unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let of = |quota: Value| {
        let name = quota["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (name, quota["status"].clone())
    };
    items.into_iter().map(of).collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_a_function_of_the_seed() {
        let all = |seed| (0..50).map(|n| format!("{:?}", drawn(seed, n))).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn what_quotas_have_counted_is_found_by_name() {
        let list = json!({"items": [
            {"metadata": {"name": "b"}, "status": {"used": {"pods": "1"}}},
            {"metadata": {"name": "a"}, "status": {}},
        ]});
        let found = used(list.to_string().as_bytes());
        assert_eq!(found, json!({"a": {}, "b": {"used": {"pods": "1"}}}));
    }
}
