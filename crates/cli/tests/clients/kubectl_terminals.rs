//! Terminals and standard input of pods that run as processes, and how many streams a pod has.

use crate::kubectl_processes::{create, start};
use crate::server::{Lines, PATIENCE, Program, Server, part};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs kubectl in a terminal and takes steps there; returns its exit code.
#[track_caller]
fn in_terminal(kubectl: &Program<'_>, line: &str, steps: &str) -> i32 {
    let inner = kubectl.command(line);
    let script = std::path::absolute("tests/clients/python/terminal.py").unwrap();
    let mut command = Command::new(part("SETPOINT_TEST_PYTHON"));
    command.arg(script).arg(steps).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("TERM", "xterm").current_dir(inner.get_current_dir().unwrap());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "kubectl {line}\n{out}{err}");
    out.trim().parse().unwrap()
}

/// Runs kubectl with an input; returns its output.
#[track_caller]
fn with_input(kubectl: &Program<'_>, line: &str, input: &str) -> String {
    let mut command = kubectl.command(line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "kubectl {line}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn commands_have_a_terminal_of_the_clients_size() {
    let server = start();
    let spec = "{containers: [{name: c, image: i, command: [sleep, '1000']}]}";
    create(&server, &server.kubectl(), "p", spec);
    server.kubectl().ok("wait pod/p --for=condition=Ready --timeout=30s");
    let steps = r#"[
        ["size", 31, 97], ["type", "echo ready-$((1+1))\n"], ["expect", "ready-2"],
        ["type", "until stty size | grep '31 97'; do :; done; echo size-$((1+1))\n"], ["expect", "size-2"],
        ["size", 40, 120],
        ["type", "until stty size | grep '40 120'; do :; done; echo size-$((1+2))\n"], ["expect", "size-3"],
        ["type", "tty && echo $TERM-term\n"], ["expect", "/dev/pts/"], ["expect", "xterm-term"],
        ["type", "sh -c 'trap \"echo caught-$((3+4)); exit\" INT; echo begun-$((1+3)); while :; do sleep 1; done'\n"],
        ["expect", "begun-4"], ["type", "\u0003"], ["expect", "caught-7"],
        ["type", "echo after-$((2+2))\n"], ["expect", "after-4"],
        ["type", "exit 7\n"]
    ]"#;
    for kubectl in [server.kubectl(), server.kubectl_old()] {
        assert_eq!(in_terminal(&kubectl, "exec -it p -- sh", steps), 7);
    }
}

#[test]
fn clients_attach_to_the_terminal_of_a_container_one_after_the_other() {
    let server = start();
    let script =
        "n=0; while read line; do n=$((n+1)); echo $n got $line; stty size; done; echo end; exit 4";
    let spec = format!(
        "{{restartPolicy: Never, containers: [{{name: c, image: i, stdin: true, tty: true, command: [sh, -c, '{script}']}}]}}"
    );
    create(&server, &server.kubectl(), "p", &spec);
    server.kubectl().ok("wait pod/p --for=condition=Ready --timeout=30s");
    let first = r#"[["size", 30, 100], ["type", "one\n"], ["expect", "1 got one"], ["hang up"]]"#;
    in_terminal(&server.kubectl(), "attach -it p", first);
    // The container's input is still open. The end of a line of input is that of its terminal.
    let second = r#"[
        ["type", "two\n"], ["expect", "2 got two"],
        ["size", 41, 121], ["type", "three\n"], ["expect", "3 got three"],
        ["type", "\u0004"], ["expect", "end"]
    ]"#;
    in_terminal(&server.kubectl_old(), "attach -it p", second);
    let kubectl = server.kubectl();
    kubectl.ok("wait pod/p --for=jsonpath={.status.phase}=Failed --timeout=30s");
    let code = "get pod p -o jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
    assert_eq!(kubectl.ok(code), "4");
    assert!(kubectl.ok("logs p").contains("2 got two\r\n"), "{}", kubectl.ok("logs p"));
}

#[test]
fn a_container_reads_the_input_of_its_clients() {
    let server = start();
    let kubectl = &server.kubectl();
    // `stdinOnce`: the end of the first client's input is that of the container's.
    let run = "run once -i --quiet --restart=Never --image=i --pod-running-timeout=30s --command -- \
        sh -c 'sleep 1; echo begin; cat; echo end'";
    let output = with_input(kubectl, run, "hello\nthere");
    assert!(output.ends_with("hello\nthereend\n"), "{output}");
    // Otherwise clients come and go. A prompt is shown before its line ends.
    let script = "printf name:; while read line; do echo got $line; printf name:; done";
    let spec = format!(
        "{{containers: [{{name: c, image: i, stdin: true, command: [sh, -c, '{script}']}}]}}"
    );
    create(&server, kubectl, "p", &spec);
    kubectl.ok("wait pod/p --for=condition=Ready --timeout=30s");
    for name in ["ada", "grace"] {
        let mut command = kubectl.command("attach -i p");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        writeln!(stdin, "{name}").unwrap();
        let mut prompt = Vec::new();
        while !prompt.ends_with(format!("got {name}\nname:").as_bytes()) {
            stdout
                .read_until(if prompt.contains(&b'\n') { b':' } else { b'\n' }, &mut prompt)
                .unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Follows the log of a pod without a client's library; returns once it is answered.
fn follow(server: &Server, pod: &str) -> (u16, TcpStream) {
    let address = server.plain.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = format!("/api/v1/namespaces/default/pods/{pod}/log?follow=true");
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(connection.try_clone().unwrap()).read_line(&mut line).unwrap();
    (line.split(' ').nth(1).unwrap().parse().unwrap(), connection)
}

#[test]
fn a_pod_has_a_bounded_number_of_streams() {
    let server = start();
    let kubectl = &server.kubectl();
    let spec = "{containers: [{name: c, image: i, command: [sh, -c, 'echo up; exec sleep 1000']}]}";
    create(&server, kubectl, "p", spec);
    create(&server, kubectl, "q", spec);
    kubectl.ok("wait pod/p pod/q --for=condition=Ready --timeout=30s");
    let forward = Lines::of(kubectl.command("port-forward pod/p :9"));
    assert!(forward.next().starts_with("Forwarding from 127.0.0.1"));
    let mut open: Vec<TcpStream> = (0..63)
        .map(|_| {
            let (code, connection) = follow(&server, "p");
            assert_eq!(code, 200);
            connection
        })
        .collect();
    assert_eq!(follow(&server, "p").0, 429);
    let refusal = "pod \"p\" has 64 open streams (logs, commands, forwarded connections and proxied requests), which is the limit";
    for kubectl in [server.kubectl(), server.kubectl_old()] {
        for line in ["exec p -- true", "attach p", "port-forward pod/p :9"] {
            let said = kubectl.fails(line);
            assert!(said.contains(refusal), "kubectl {line}: {said}");
        }
        kubectl.ok("exec q -- true");
    }
    // The server notices that a client is gone.
    drop(open.pop());
    let started = Instant::now();
    while !kubectl.command("exec p -- true").output().unwrap().status.success() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}
