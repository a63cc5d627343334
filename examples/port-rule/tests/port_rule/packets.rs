//! Real packets between two network namespaces that each test makes for itself: a node, where the
//! whole product runs over a control plane in the process, and a peer.
//!
//! The programs are those of the folder `SETPOINT_TEST_FIREWALL`, or of `PATH`.

use crate::definitions;
use k8s_openapi::api::core::v1::Node;
use port_rule::agent::{self, Agent};
use port_rule::api::PortRule;
use port_rule::backend::{Backend, Iptables, Nftables, Program};
use port_rule::controller;
use port_rule::ruleset::{Rule, Ruleset};
use serde_json::{Value, json};
use setpoint::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use setpoint::kube_client::Api;
use setpoint::kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use setpoint::testenv::{TestEnv, gone, matches};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long something that should happen may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the peer waits for an answer that should not come. Longer proves no more: the node's
/// side says whether the packet was let in.
const SILENCE: Duration = Duration::from_millis(200);

/// A port with a TCP listener and one with a UDP socket, on the node and on the peer.
const TCP: u16 = 8080;
const UDP: u16 = 9090;
/// The same, of which no rule speaks.
const OTHER: u16 = 7070;

type Task = Box<dyn FnOnce() + Send>;

/// The peer: a thread in a network namespace of its own, which runs what it is given.
struct Peer(mpsc::Sender<Task>);

impl Peer {
    fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answers) = mpsc::channel();
        self.0.send(Box::new(move || drop(answer.send(f())))).unwrap();
        answers.recv().expect("the peer did it")
    }
}

fn leave_for_a_new_namespace() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
        .expect("a network namespace of the test's own needs CAP_SYS_ADMIN: run as root, or leave out the feature netns-tests");
}

fn run(command: &str) -> String {
    let mut words = command.split(' ');
    let program = words.next().unwrap();
    let output = Command::new(path(program)).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A program: `ip` of the system, others of the folder with firewalls' programs, if it is named.
fn path(program: &str) -> PathBuf {
    let folder = std::env::var_os("SETPOINT_TEST_FIREWALL").filter(|_| program != "ip");
    folder.map_or_else(|| program.into(), |folder| PathBuf::from(folder).join(program))
}

/// Runs a test in the node's namespace, with a link to a peer.
fn with_peer<F: Future<Output = ()>>(test: impl FnOnce(Peer) -> F + Send + 'static) {
    let node = std::thread::spawn(move || {
        leave_for_a_new_namespace();
        let (tasks, to_do) = mpsc::channel::<Task>();
        let peer = Peer(tasks);
        let thread = std::thread::spawn(move || {
            leave_for_a_new_namespace();
            to_do.into_iter().for_each(|task| task());
        });
        // "<process>/task/<thread>"
        let thread_id = peer.run(|| std::fs::read_link("/proc/thread-self").unwrap());
        let thread_id = thread_id.file_name().unwrap().to_str().unwrap().to_owned();
        run("ip link add to-peer type veth peer name to-node");
        run(&format!("ip link set to-node netns {thread_id}"));
        let set_up = |device: &str, v4: &str, v6: &str| {
            run("ip link set lo up");
            run(&format!("ip address add {v4}/24 dev {device}"));
            run(&format!("ip -6 address add {v6}/64 dev {device} nodad"));
            run(&format!("ip link set {device} up"));
        };
        set_up("to-peer", "10.77.0.1", "fd77::1");
        peer.run(move || set_up("to-node", "10.77.0.2", "fd77::2"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(peer));
        drop(runtime);
        thread
    });
    match node.join() {
        Ok(peer) => peer.join().unwrap(),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    Silence,
    Refused,
}

/// Sockets on all addresses of one side.
struct Sockets {
    tcp: Vec<(u16, TcpListener)>,
    udp: Vec<(u16, UdpSocket)>,
}

impl Sockets {
    fn bind() -> Self {
        let tcp = [TCP, OTHER].map(|port| (port, TcpListener::bind(("::", port)).unwrap()));
        let udp = [UDP, OTHER].map(|port| (port, UdpSocket::bind(("::", port)).unwrap()));
        for (_, listener) in &tcp {
            listener.set_nonblocking(true).unwrap();
        }
        Self { tcp: tcp.into(), udp: udp.into() }
    }

    fn udp(&self, port: u16) -> &UdpSocket {
        &self.udp.iter().find(|(known, _)| *known == port).unwrap().1
    }

    fn tcp(&self, port: u16) -> &TcpListener {
        &self.tcp.iter().find(|(known, _)| *known == port).unwrap().1
    }

    /// Whether a connection waits to be accepted; all that wait are.
    fn has_connections(&self, port: u16) -> bool {
        std::iter::from_fn(|| self.tcp(port).accept().ok()).count() > 0
    }

    /// Accepts a connection that the peer has opened. Its last packet may still be on the way.
    fn accept(&self, port: u16) -> TcpStream {
        loop {
            if let Ok((stream, _)) = self.tcp(port).accept() {
                return stream;
            }
            std::thread::yield_now();
        }
    }

    /// Whether a datagram arrived before one that was sent later to another port.
    fn has_datagram(&self, port: u16) -> bool {
        let mut datagram = [0; 16];
        let marked = self.udp(OTHER);
        marked.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(marked.recv(&mut datagram).expect("the port is open"), 4);
        let socket = self.udp(port);
        socket.set_nonblocking(true).unwrap();
        socket.recv(&mut datagram).is_ok()
    }
}

fn connect(to: SocketAddr, expected: Fate) -> Fate {
    let patience = if expected == Fate::Silence { SILENCE } else { PATIENCE };
    match TcpStream::connect_timeout(&to, patience) {
        Ok(_) => Fate::Passes,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Fate::Refused,
        Err(_) => Fate::Silence,
    }
}

/// Whether an open connection still carries data: `false` if the other side resets it.
fn carries(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"data").unwrap();
    !stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Sends a datagram, and one to the other port after it. Says whether the first was refused.
fn send(to: SocketAddr, expected: Fate) -> bool {
    let bind = || {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        UdpSocket::bind((any, 0)).unwrap()
    };
    let socket = bind();
    socket.connect(to).unwrap();
    socket.send(b"data").unwrap();
    let is_refused = expected == Fate::Refused && {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.recv(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    bind().send_to(b"mark", (to.ip(), OTHER)).unwrap();
    is_refused
}

/// The product on the node.
struct Product {
    env: TestEnv,
    peer: Peer,
    sockets: Sockets,
}

impl Product {
    async fn start(peer: Peer, backend: Arc<dyn Backend>) -> Self {
        let env = TestEnv::builder().patience(PATIENCE).definitions(definitions());
        let env = env.start().await.unwrap();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}});
        let node: Node = serde_json::from_value(node).unwrap();
        Api::<Node>::all(env.client()).create(&PostParams::default(), &node).await.unwrap();
        let mut manager = env.manager().build();
        manager.add(controller::controller().unwrap()).unwrap();
        env.run(manager);
        let mut manager = env.manager().cache(agent::cache("a").unwrap()).build();
        Agent::new("a", Arc::new(backend))
            .check_period(Duration::from_secs(1))
            .add_to(&mut manager)
            .unwrap();
        env.run(manager);
        Self { env, peer, sockets: Sockets::bind() }
    }

    fn rules(&self) -> Api<PortRule> {
        Api::all(self.env.client())
    }

    /// Applies a rule and waits until the node has it.
    async fn apply(&self, name: &str, spec: Value) {
        let rule = json!({"apiVersion": "firewalld.fedoraproject.org/v1", "kind": "PortRule",
            "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("test").force();
        let rule = self.rules().patch(name, &params, &Patch::Apply(rule)).await.unwrap();
        let generation = rule.metadata.generation;
        let is_applied = move |rule: &Value| {
            rule["status"]["observedGeneration"].as_i64() == generation
                && rule["status"]["conditions"][0]["status"] == "True"
        };
        self.env.until(&self.rules(), name, matches("is applied", is_applied)).await;
    }

    async fn delete(&self, name: &str) {
        self.rules().delete(name, &DeleteParams::default()).await.unwrap();
        self.env.until(&self.rules(), name, gone()).await;
    }

    /// What becomes of connections of the peer to the node, over IPv4 and IPv6.
    #[track_caller]
    fn tcp(&self, port: u16, expected: Fate) {
        for ip in ["10.77.0.1", "fd77::1"] {
            let to = SocketAddr::new(ip.parse().unwrap(), port);
            let fate = self.peer.run(move || connect(to, expected));
            assert_eq!(fate, expected, "TCP to {to}");
            assert_eq!(self.sockets.has_connections(port), expected == Fate::Passes, "{to}");
        }
    }

    /// What becomes of datagrams of the peer to the node, over IPv4 and IPv6.
    #[track_caller]
    fn udp(&self, port: u16, expected: Fate) {
        for ip in ["10.77.0.1", "fd77::1"] {
            let to = SocketAddr::new(ip.parse().unwrap(), port);
            let is_refused = self.peer.run(move || send(to, expected));
            assert_eq!(is_refused, expected == Fate::Refused, "UDP to {to}");
            assert_eq!(self.sockets.has_datagram(port), expected == Fate::Passes, "UDP to {to}");
        }
    }
}

/// The table and chains of ours that `nft` and iptables list.
fn leftovers() -> Vec<String> {
    let ruleset = run("nft list ruleset");
    let is_ours = |line: &&str| line.contains("port_rule") || line.contains("PORT-RULE");
    ruleset.lines().filter(is_ours).map(str::to_owned).collect()
}

fn nftables() -> Arc<dyn Backend> {
    Arc::new(Nftables::new(Program::new(path("nft"))))
}

fn iptables() -> Arc<dyn Backend> {
    Arc::new(Iptables::new(|name| Program::new(path(name))))
}

/// The life of two rules: applied, overruled, damaged, deleted.
async fn life_of_rules(peer: Peer, backend: Arc<dyn Backend>) {
    let product = Product::start(peer, backend).await;
    product.tcp(TCP, Fate::Passes);
    product.udp(UDP, Fate::Passes);
    let open = product.peer.run(|| TcpStream::connect(("10.77.0.1", TCP)).unwrap());
    let accepted = product.sockets.accept(TCP);

    product.apply("closed", json!({"action": "Drop", "ports": [{"port": TCP}]})).await;
    product.tcp(TCP, Fate::Silence);
    product.tcp(OTHER, Fate::Passes);
    product.udp(UDP, Fate::Passes);
    let loopback = connect(SocketAddr::new([127, 0, 0, 1].into(), TCP), Fate::Passes);
    assert_eq!(loopback, Fate::Passes, "the node's own connections");
    assert!(product.sockets.has_connections(TCP));

    let refused =
        json!({"action": "Reject", "protocol": "UDP", "ports": [{"port": 9000, "endPort": 9100}]});
    product.apply("refused", refused).await;
    product.udp(UDP, Fate::Refused);
    product.apply("closed", json!({"action": "Reject", "ports": [{"port": TCP}]})).await;
    product.tcp(TCP, Fate::Refused);
    let mut open = open;
    assert!(!product.peer.run(move || carries(&mut open)), "an open connection is cut");
    drop(accepted);

    let peers = json!(["10.77.0.2/32", "fd77::/64"]);
    let open = json!({"action": "Allow", "ports": [{"port": TCP}], "peers": peers});
    product.apply("open", open).await;
    product.tcp(TCP, Fate::Passes);
    product.udp(UDP, Fate::Refused);
    let elsewhere = json!({"action": "Allow", "ports": [{"port": TCP}], "peers": ["10.77.0.3/32"]});
    product.apply("open", elsewhere).await;
    product.tcp(TCP, Fate::Refused);

    // Somebody empties the whole firewall.
    let n_lines = leftovers().len();
    run("nft flush ruleset");
    let is_repaired = async || (leftovers().len() == n_lines).then_some(());
    product.env.eventually("the firewall is repaired", is_repaired).await;
    product.tcp(TCP, Fate::Refused);
    product.udp(UDP, Fate::Refused);

    product.delete("closed").await;
    product.tcp(TCP, Fate::Passes);
    product.udp(UDP, Fate::Refused);

    // Uninstalling starts with the definition.
    let definitions = Api::<CustomResourceDefinition>::all(product.env.client());
    let name = "ports.firewalld.fedoraproject.org";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    product.env.until(&definitions, name, gone()).await;
    assert_eq!(leftovers(), [""; 0], "uninstalling leaves nothing");
    product.udp(UDP, Fate::Passes);
    product.env.stop().await.unwrap();
}

#[test]
fn nftables_blocks_and_passes_packets_and_is_repaired() {
    with_peer(|peer| life_of_rules(peer, nftables()));
}

#[test]
fn iptables_blocks_and_passes_packets_and_is_repaired() {
    with_peer(|peer| life_of_rules(peer, iptables()));
}

/// A closed port, in the direction of the node's own connections.
async fn own_connections(peer: Peer, backend: Arc<dyn Backend>) {
    let product = Product::start(peer, backend).await;
    let listeners = product.peer.run(Sockets::bind);
    let to = |port| SocketAddr::new([10, 77, 0, 2].into(), port);
    assert_eq!(connect(to(TCP), Fate::Passes), Fate::Passes);
    let out = json!({"action": "Reject", "direction": "Out", "ports": [{"port": TCP}]});
    product.apply("out", out).await;
    assert_eq!(connect(to(TCP), Fate::Refused), Fate::Refused);
    assert_eq!(connect(to(OTHER), Fate::Passes), Fate::Passes);
    product.tcp(TCP, Fate::Passes);

    // A closed port does not close connections that have it as their own port.
    let all = json!({"action": "Drop", "ports": [{"port": 1024, "endPort": 65535}]});
    product.apply("ephemeral", all).await;
    assert_eq!(connect(to(OTHER), Fate::Passes), Fate::Passes);
    product.tcp(TCP, Fate::Silence);
    product.delete("ephemeral").await;
    product.delete("out").await;
    assert_eq!(connect(to(TCP), Fate::Passes), Fate::Passes);
    assert_eq!(leftovers(), [""; 0]);
    drop(listeners);
    product.env.stop().await.unwrap();
}

#[test]
fn nftables_blocks_what_the_node_asks() {
    with_peer(|peer| own_connections(peer, nftables()));
}

#[test]
fn iptables_blocks_what_the_node_asks() {
    with_peer(|peer| own_connections(peer, iptables()));
}

/// Rulesets with many ranges: whatever way the program lists them, they are recognized, and a
/// table of somebody else stays as it is.
async fn recognized(backend: Arc<dyn Backend>) {
    run("nft add table inet others");
    run("nft add chain inet others input { type filter hook input priority 0 ; }");
    let others = run("nft list table inet others");
    let mut before = Ruleset::default();
    for n in 0..12_u16 {
        let ports: Vec<Value> = (0..=n * 3)
            .map(|k| json!({"port": 1 + k * 7, "endPort": 1 + k * 7 + (k + n) % 8}))
            .collect();
        let peers = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "11.0.0.0/8",
            "192.168.7.9/32",
            "0.0.0.0/1",
            "128.0.0.0/1",
            "fd00::/8",
            "fd00:1::/32",
            "::1/128",
            "::/0",
        ];
        let peers: Vec<&str> =
            peers.into_iter().skip(usize::from(n) % 5).step_by(1 + usize::from(n) % 3).collect();
        let rules = ["TCP", "UDP", "SCTP"].into_iter().enumerate().map(|(k, protocol)| {
            let action = ["Allow", "Drop", "Reject"][(k + usize::from(n)) % 3];
            let direction = ["In", "Out"][(k + usize::from(n)) % 2];
            let peers = if n % 4 == 3 { &[][..] } else { &peers[..] };
            let spec = json!({"action": action, "direction": direction, "protocol": protocol,
                "ports": ports, "peers": peers});
            Rule::of(&format!("rule-{k}.x"), &serde_json::from_value(spec).unwrap()).unwrap()
        });
        let ruleset = Ruleset::of(rules);
        backend.replace(&ruleset).await.unwrap();
        assert!(backend.holds(&ruleset).await.unwrap(), "{}", run("nft list ruleset"));
        assert!(!backend.holds(&before).await.unwrap());
        before = ruleset;
    }
    backend.replace(&Ruleset::default()).await.unwrap();
    assert!(backend.holds(&Ruleset::default()).await.unwrap());
    assert_eq!(leftovers(), [""; 0]);
    assert_eq!(run("nft list table inet others"), others);
}

#[test]
fn nftables_lists_what_it_was_given() {
    with_peer(|_| recognized(nftables()));
}

#[test]
fn iptables_lists_what_it_was_given() {
    with_peer(|_| recognized(iptables()));
}

#[test]
fn nftables_tells_of_changes() {
    with_peer(async |_| {
        let backend = nftables();
        let (notices, mut changed) = tokio::sync::mpsc::channel(1);
        let change = async {
            // The monitor may start after the first changes.
            let mut n = 0;
            while changed.try_recv().is_err() {
                run(&format!("nft add table inet table-{n}"));
                n += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = backend.notices(notices) => panic!("{ended:?}"),
            () = change => {}
        }
    });
}
