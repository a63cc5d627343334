//! A data folder: acknowledged writes survive any end of the program.

use crate::raw;
use crate::server::{PATIENCE, Server};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const PATH: &str = "/api/v1/namespaces/default/configmaps";

fn start(data: &Path) -> Server {
    Server::start_with(&["--data".as_ref(), data.as_os_str()])
}

#[track_caller]
fn create(server: &Server, name: &str) -> Value {
    let body = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(300)}}).to_string();
    let answer = raw::send(server, "POST", PATH, "application/json", body.as_bytes());
    assert_eq!(answer.code, 201, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
fn get(server: &Server, name: &str) -> Value {
    let answer = raw::get(server, &format!("{PATH}/{name}"));
    assert_eq!(answer.code, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn objects_survive_a_clean_stop_and_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    let first = create(&server, "first");
    assert!(server.stop("TERM").success());
    let mut server = start(data.path());
    assert_eq!(get(&server, "first"), first, "uid and resourceVersion stay, too");
    let second = create(&server, "second");
    assert!(!server.stop("KILL").success());
    let server = start(data.path());
    assert_eq!((get(&server, "first"), get(&server, "second")), (first.clone(), second));
    // A watch from before both ends resumes without a list.
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{PATH}?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let events = raw::get(&server, &path);
    assert_eq!(events.code, 200, "{events:?}");
    assert!(events.body.contains("ADDED") && events.body.contains("second"), "{events:?}");
}

/// Without a folder a restart begins a new store: clients of the last one must list again.
#[test]
fn a_watch_from_a_store_in_memory_that_is_gone_gets_410() {
    let mut server = Server::start();
    let object = create(&server, "first");
    assert!(server.stop("TERM").success());
    let server = Server::start();
    create(&server, "second");
    let from: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    // Of the last run, and of one that has never been.
    for (from, why) in [(from, "too old"), (from + 1_000_000_000, "too large")] {
        let path = format!("{PATH}?watch=1&timeoutSeconds=10&resourceVersion={from}");
        let events = raw::get(&server, &path);
        assert!(events.body.contains(r#""type":"ERROR""#), "{events:?}");
        assert!(events.body.contains(r#""code":410"#) && events.body.contains(why), "{events:?}");
    }
}

/// The first signal waits for requests that are being sent, the second one does not.
#[test]
fn second_signal_ends_the_program_at_once_and_acknowledged_writes_stay() {
    let data = tempfile::tempdir().unwrap();
    for signal in ["INT", "TERM"] {
        let mut server = start(data.path());
        create(&server, &signal.to_lowercase());
        let mut open = raw::connect(&server);
        let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n\
            Content-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n";
        open.write_all(head.as_bytes()).unwrap();
        // The server waits for the body.
        let mut answer = [0; 12];
        open.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100");
        server.signal(signal);
        let started = Instant::now();
        while !server.log().contains(&format!("SIG{signal}: stopping")) {
            assert!(started.elapsed() < PATIENCE, "{}", server.log());
            std::thread::yield_now();
        }
        assert_eq!(server.stop(signal).code(), Some(1), "{}", server.log());
        assert!(server.log().contains("ending at once"), "{}", server.log());
    }
    let server = start(data.path());
    get(&server, "int");
    get(&server, "term");
}

#[test]
fn a_lost_journal_is_reported_with_an_exit_code_or_the_rest_is_served() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    create(&server, "first");
    assert!(server.stop("TERM").success());
    // Not needed after a clean stop.
    let journal = data.path().join("store.journal");
    std::fs::remove_file(&journal).unwrap();
    let mut server = start(data.path());
    create(&server, "second");
    assert!(!server.stop("KILL").success());
    std::fs::remove_file(&journal).unwrap();
    let (code, text) = failed_start(data.path(), "refuse").unwrap();
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("store.journal is missing") && text.contains("are lost"), "{text}");
    for command in ["check", "stat"] {
        let refused = store(&[command.as_ref(), "--data".as_ref(), data.path().as_os_str()]);
        assert!(refused.unwrap_err().contains("store.journal is missing"));
    }
    assert_eq!(failed_start(data.path(), "serve"), None);
    get(&start(data.path()), "first");
}

#[test]
fn unusable_folder_causes_a_clear_error() {
    let data = tempfile::tempdir().unwrap();
    let _server = start(data.path());
    let ends_with = |code: i32, arguments: &[&std::ffi::OsStr]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        let output =
            program.arg("up").args(["--secure-port", "0"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let refusal = |arguments: &[&std::ffi::OsStr]| ends_with(1, arguments);
    let text = refusal(&["--data".as_ref(), data.path().as_os_str()]);
    assert!(text.contains("is in use by another process"), "{text}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = refusal(&["--data".as_ref(), file.path().as_os_str()]);
    assert!(text.contains("cannot make the folder"), "{text}");
    let damaged = tempfile::tempdir().unwrap();
    std::fs::write(damaged.path().join("store.redb"), b"not a store at all".repeat(1000)).unwrap();
    let text = ends_with(3, &["--data".as_ref(), damaged.path().as_os_str()]);
    assert!(text.contains("store.redb"), "{text}");
    assert!(refusal(&["--store".as_ref(), "disk".as_ref()]).contains("--data DIR"));
}

/// Runs `setpoint store …`; returns its output if it succeeds, otherwise its message.
fn store(arguments: &[&std::ffi::OsStr]) -> Result<String, String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    let output = program.arg("store").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn store_is_backed_up_while_it_serves_and_the_copy_serves_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (data, other, copy) =
        (folder.path().join("data"), folder.path().join("other"), folder.path().join("copy"));
    let ask = |what: &str, data: &Path, file: Option<&Path>| {
        let mut arguments = vec![what.as_ref(), "--data".as_ref(), data.as_os_str()];
        arguments.extend(file.map(Path::as_os_str));
        store(&arguments)
    };
    let mut server = start(&data);
    let first = create(&server, "first");
    let stat = ask("stat", &data, None).unwrap();
    // The server writes objects of its own meanwhile.
    let revision: u64 = first["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let known = stat.lines().find_map(|line| line.strip_prefix("revision "));
    assert!(known.unwrap().trim().parse::<u64>().unwrap() >= revision, "{stat}");
    let as_json = |data: &Path| -> Value {
        let arguments = ["stat", "-o", "json", "--data"].map(std::ffi::OsStr::new);
        let said = store(&[&arguments[..], &[data.as_os_str()]].concat()).unwrap();
        serde_json::from_str(&said).unwrap()
    };
    assert!(as_json(&data)["revision"].as_u64().unwrap() >= revision);
    ask("backup", &data, Some(&copy)).unwrap();
    assert!(crate::server::is_private(&copy), "a copy holds Secrets");
    assert!(crate::server::is_private(&data.join("store.redb")), "so does the store");
    create(&server, "later");
    let refused = ask("backup", &data, Some(&copy)).unwrap_err();
    assert!(refused.contains("already exists"), "{refused}");
    let refused = ask("check", &data, None).unwrap_err();
    assert!(refused.contains("is in use by another process"), "{refused}");

    ask("restore", &other, Some(&copy)).unwrap();
    let restored = start(&other);
    assert_eq!(get(&restored, "first"), first);
    assert_eq!(raw::get(&restored, &format!("{PATH}/later")).code, 404);
    // A client of the old store must list again: it may have seen later revisions than the copy's.
    let later = format!("{PATH}?watch=1&timeoutSeconds=1&resourceVersion={revision}");
    let expired = raw::get(&restored, &later);
    assert!(expired.body.contains("\"code\":410"), "{expired:?}");
    let second = create(&restored, "second");
    let bumped: u64 = second["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(bumped > revision + 1_000_000_000, "{bumped}");
    // Unless the copy's history is wanted.
    let same = folder.path().join("same");
    let bump = ["--bump-revision", "0"].map(std::ffi::OsStr::new);
    let restore = ["restore".as_ref(), "--data".as_ref(), same.as_os_str(), copy.as_os_str()];
    store(&[&restore[..], &bump[..]].concat()).unwrap();
    assert!(as_json(&same)["revision"].as_u64().unwrap() < 1_000_000_000);
    let continued = raw::get(&start(&same), &later);
    let is_continued = continued.code == 200 && !continued.body.contains("\"code\":410");
    assert!(is_continued, "{continued:?}");

    assert!(server.stop("TERM").success());
    assert!(ask("check", &data, None).unwrap().contains("is intact"));
    ask("defrag", &data, None).unwrap();
    // Without a running program, the same result from the folder.
    let again = folder.path().join("again");
    ask("backup", &data, Some(&again)).unwrap();
    assert!(ask("stat", &data, None).unwrap().contains("keys "));
    assert_eq!(as_json(&data)["expiringKeys"], 0);
    let mut bytes = std::fs::read(&again).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&again, bytes).unwrap();
    let refused = ask("restore", &folder.path().join("third"), Some(&again)).unwrap_err();
    assert!(refused.contains("is damaged") && refused.contains("at byte"), "{refused}");
}

/// Starts `setpoint up` on a folder. Returns its exit code and message if it ends by itself; `None`
/// once it serves. A start that does neither within a minute returns 124.
fn failed_start(data: &Path, damaged: &str) -> Option<(i32, String)> {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new("timeout");
    program.args(["60", env!("CARGO_BIN_EXE_setpoint"), "up", "--secure-port", "0", "--damaged"]);
    program.arg(damaged).arg("--kubeconfig").arg(folder.path().join("config"));
    program.arg("--data").arg(data);
    program.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    if line.starts_with("ready") {
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        child.wait().unwrap();
        return None;
    }
    let output = child.wait_with_output().unwrap();
    Some((output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap()))
}

/// A damaged page does not make a start hang: the program reports the loss, or serves the rest if
/// told to.
#[test]
fn damage_is_reported_with_an_exit_code_and_names_or_the_rest_is_served() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    let names: Vec<String> = (0..200).map(|n| format!("object-{n}")).collect();
    let objects: Vec<Value> = names.iter().map(|name| create(&server, name)).collect();
    assert!(server.stop("TERM").success());
    let path = data.path().join("store.redb");
    let whole = std::fs::read(&path).unwrap();
    // Positions that are in use: where object names are stored.
    let needle = b"/registry/configmaps/default/object-";
    let places: Vec<usize> =
        (0..whole.len() - needle.len()).filter(|at| whole[*at..].starts_with(needle)).collect();
    let (mut n_refused, mut n_damaged) = (0, 0);
    for n in 0..20 {
        let at = places[n * 7919 % places.len()] / 512 * 512;
        let mut damaged = whole.clone();
        damaged[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&path, damaged).unwrap();
        let Some((code, text)) = failed_start(data.path(), "refuse") else { continue };
        n_refused += 1;
        assert_eq!(code, 3, "{text}");
        assert!(text.contains("object-") || text.contains("pages of `"), "{text}");
        assert!(text.contains("--damaged=serve"), "{text}");
        let checked = store(&["check".as_ref(), "--data".as_ref(), data.path().as_os_str()]);
        assert!(checked.unwrap_err().contains("is damaged"));
        assert_eq!(failed_start(data.path(), "serve"), None, "place {at}");
        let serve: [&std::ffi::OsStr; 4] =
            ["--data".as_ref(), data.path().as_os_str(), "--damaged".as_ref(), "serve".as_ref()];
        let server = Server::start_with(&serve);
        let mut is_damaged = false;
        for (name, object) in names.iter().zip(&objects) {
            let answer = raw::get(&server, &format!("{PATH}/{name}"));
            let found: Value = serde_json::from_str(&answer.body).unwrap();
            if answer.code == 200 {
                assert_eq!(found, *object);
                continue;
            }
            assert_eq!(answer.code, 500, "{answer:?}");
            let message = found["message"].as_str().unwrap();
            // Who has asked for one object knows its name.
            assert!(message.contains("damaged"), "{message}");
            is_damaged = true;
            n_damaged += 1;
        }
        // As the reference does for a list in which an object cannot be decrypted: a 500 that names
        // the object. Other kinds are served.
        let list = raw::get(&server, PATH);
        assert_eq!(list.code, if is_damaged { 500 } else { 200 }, "{list:?}");
        assert_eq!(raw::get(&server, "/api/v1/namespaces").code, 200);
        let later = create(&server, "later");
        assert_eq!(get(&server, "later"), later);
        for file in std::fs::read_dir(data.path()).unwrap() {
            let file = file.unwrap().path();
            if file.to_string_lossy().contains(".damaged-") {
                std::fs::remove_file(file).unwrap();
            }
        }
    }
    assert!(n_refused >= 10 && n_damaged > 0, "{n_refused} refused, {n_damaged} damaged");
}

/// On a full disk, creates get a status that names the reason, and every object can still be
/// deleted.
#[test]
fn full_disk_refuses_creates_with_507_and_allows_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(folder.path());
    if !mount.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    let data = folder.path().join("data");
    let mut server = start(&data);
    let mut noise = 1_u64;
    let mut value = || -> String {
        let next = |_| {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            format!("{noise:016x}")
        };
        (0..15_000).map(next).collect()
    };
    let mut n_created = 0;
    let refused = loop {
        assert!(n_created < 500, "it never became full");
        let body = json!({"metadata": {"name": format!("o-{n_created}")}, "data": {"a": value()}});
        let body = body.to_string();
        let answer = raw::send(&server, "POST", PATH, "application/json", body.as_bytes());
        if answer.code != 201 {
            break answer;
        }
        n_created += 1;
    };
    let status: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!((refused.code, &status["reason"]), (507, &json!("InsufficientStorage")), "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("no room") && message.contains("delete objects"), "{message}");
    assert!(n_created > 10, "{n_created}");
    for n in 0..n_created {
        let answer =
            raw::send(&server, "DELETE", &format!("{PATH}/o-{n}"), "application/json", b"");
        assert_eq!(answer.code, 200, "object {n} of {n_created}: {answer:?}");
    }
    assert!(server.stop("TERM").success());
    drop(server);
    assert!(Command::new("umount").arg(folder.path()).status().unwrap().success());
}
