//! Data folders that cannot be used, and a full disk: one clear error line, a documented exit code,
//! nothing lost.

use crate::raw;
use crate::server::{PATIENCE, Server};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const SETPOINT: &str = env!("CARGO_BIN_EXE_setpoint");

fn start(data: &Path) -> Server {
    Server::start_with(&["--data".as_ref(), data.as_os_str()])
}

fn create(server: &Server, name: &str, n_bytes: usize) -> raw::Answer {
    // Data that does not compress well.
    let mut word = 1_u64;
    let text: String = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(name.len() as u64 + 1);
        char::from(b'!' + u8::try_from(word >> 33 & 0x3f).unwrap())
    })
    .filter(|c| !matches!(c, '"' | '\\'))
    .take(n_bytes)
    .collect();
    let body = json!({"metadata": {"name": name}, "data": {"a": text}}).to_string();
    raw::send(server, "POST", PATH, "application/json", body.as_bytes())
}

/// A folder with a store with some objects; the server that made it has ended.
fn folder_with_objects() -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path());
    for n in 0..20 {
        assert_eq!(create(&server, &format!("made-{n}"), 400).code, 201);
    }
    assert!(server.stop("TERM").success());
    data
}

fn file(data: &Path) -> PathBuf {
    data.join("store.redb")
}

/// Runs the program on a folder that it cannot use; returns its one line of output, which names the
/// path. The exit code is 3 if the folder is damaged, otherwise 1, and the file is unchanged.
#[track_caller]
fn refusal(command: Command, arguments: &[&str], data: &Path) -> String {
    let before = fs::read(file(data)).ok();
    let text = refusal_of(command, arguments, data);
    assert!(fs::read(file(data)).ok() == before, "{arguments:?} changed the file: {text}");
    text
}

/// As [`refusal`], for a file that another process writes.
#[track_caller]
fn refusal_of(mut command: Command, arguments: &[&str], data: &Path) -> String {
    let output = command.args(arguments).arg("--data").arg(data).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let code = if text.contains("is damaged") { 3 } else { 1 };
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    let out = String::from_utf8(output.stdout).unwrap();
    // A check also lists what is lost, if it can read a part of the file.
    let is_list = arguments.contains(&"check")
        && out.lines().all(|line| line.starts_with("lost: ") || line.ends_with(" can be read"));
    assert!(out.is_empty() || is_list, "{arguments:?}: {out}");
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    assert!(text.starts_with("setpoint: "), "{text}");
    assert!(text.contains(data.to_str().unwrap()), "it does not say where: {text}");
    text
}

/// Checks every command that needs a folder's store.
#[track_caller]
fn refusals(data: &Path, phrases: &[&str]) {
    for arguments in [
        &["up", "--secure-port", "0"][..],
        &["store", "check"],
        &["store", "stat"],
        &["store", "defrag"],
    ] {
        let text = refusal(Command::new(SETPOINT), arguments, data);
        for phrase in phrases {
            assert!(text.contains(phrase), "{arguments:?} does not say {phrase:?}: {text}");
        }
    }
}

#[test]
fn damaged_file_is_reported_with_advice_and_left_unchanged() {
    let data = folder_with_objects();
    let whole = fs::read(file(data.path())).unwrap();
    let restore = "restore a backup with `setpoint store restore`";
    let damaged = |bytes: &[u8], phrases: &[&str]| {
        fs::write(file(data.path()), bytes).unwrap();
        refusals(data.path(), phrases);
    };
    damaged(&[], &["store.redb is damaged: it is empty", restore]);
    damaged(&b"not a store at all".repeat(1000), &["it is not a store", restore]);
    let mut bytes = whole.clone();
    // redb's magic number.
    bytes[0] ^= 0xff;
    damaged(&bytes, &["it is not a store", restore]);
    // Some objects can be read, so there is more advice.
    let half = &whole[..whole.len() / 2];
    damaged(half, &["store.redb", "is damaged", "`setpoint store restore`"]);
    damaged(&whole[..1000], &["store.redb", "is damaged", restore]);
    fs::write(file(data.path()), &whole).unwrap();
    let server = start(data.path());
    assert_eq!(raw::get(&server, &format!("{PATH}/made-7")).code, 200);
}

/// A damaged byte in a stored object: every reader reports it, `check` reports the position, and no
/// copy is made.
#[test]
fn damaged_record_is_found_by_every_reader() {
    let data = folder_with_objects();
    let mut bytes = fs::read(file(data.path())).unwrap();
    let key = b"/registry/configmaps/default/made-7";
    let places: Vec<usize> =
        (0..bytes.len() - key.len()).filter(|at| bytes[*at..].starts_with(key)).collect();
    // In the log the key is followed by its value, elsewhere by other keys: some bytes after it
    // always belong to an object.
    for at in &places {
        bytes[at + key.len() + 20] ^= 0x10;
    }
    assert!(!places.is_empty());
    fs::write(file(data.path()), &bytes).unwrap();
    let mut program = Command::new(SETPOINT);
    let output = program.args(["store", "check", "--data"]).arg(data.path()).output().unwrap();
    let (lost, text) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("is damaged"), "{text}");
    assert!(lost.contains("lost: /registry/configmaps/default/made-"), "{lost}");
    // Read at start; nothing is served that was not written.
    let mut program = Command::new(SETPOINT);
    program.args(["up", "--secure-port", "0", "--kubeconfig"]);
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    program.arg(kubeconfig.path()).arg("--data").arg(data.path());
    let output = program.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("damaged"), "{text}");
    let copy = data.path().join("copy");
    let mut program = Command::new(SETPOINT);
    let output = program.args(["store", "backup", "--data"]).arg(data.path()).arg(&copy).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(!copy.exists() && !data.path().join("copy.partial").exists(), "a copy was left");
}

#[test]
fn newer_format_and_foreign_file_are_refused() {
    let data = folder_with_objects();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    let database = redb::Database::open(file(data.path())).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(meta).unwrap().insert("format", 99).unwrap();
    transaction.commit().unwrap();
    drop(database);
    refusals(data.path(), &["has format 99", "use a newer program"]);
    let other = tempfile::tempdir().unwrap();
    let database = redb::Database::create(file(other.path())).unwrap();
    let transaction = database.begin_write().unwrap();
    let theirs = redb::TableDefinition::<&str, u64>::new("theirs");
    transaction.open_table(theirs).unwrap().insert("a", 1).unwrap();
    transaction.commit().unwrap();
    drop(database);
    refusals(other.path(), &["it is another program's", "choose another folder"]);
}

#[test]
fn one_folder_belongs_to_one_process() {
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path());
    assert_eq!(create(&server, "first", 10).code, 201);
    for arguments in [&["up", "--secure-port", "0"][..], &["store", "check"], &["store", "defrag"]]
    {
        // The first one writes meanwhile.
        let text = refusal_of(Command::new(SETPOINT), arguments, data.path());
        assert!(text.contains("is in use by another process: stop that one"), "{text}");
    }
    assert_eq!(create(&server, "second", 10).code, 201, "the first one goes on");
}

#[test]
fn folder_without_permission_is_refused() {
    let data = folder_with_objects();
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", SETPOINT]);
        command
    };
    if !nobody().arg("version").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: another user cannot be taken on here");
        return;
    }
    for arguments in [&["up", "--secure-port", "0"][..], &["store", "check"], &["store", "stat"]] {
        let text = refusal(nobody(), arguments, data.path());
        assert!(text.contains("choose a folder that this user owns"), "{text}");
        assert!(text.contains("Permission denied"), "{text}");
    }
}

#[test]
fn read_only_folder_is_refused() {
    let data = folder_with_objects();
    let namespaced = |line: &str| {
        let mut command = Command::new("unshare");
        let bound = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
        command.args(["--map-root-user", "--mount", "sh", "-c", bound]).arg(data.path());
        command.args(line.split(' ').filter(|word| !word.is_empty()));
        command
    };
    if !namespaced("true").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: nothing can be mounted here");
        return;
    }
    for arguments in [&["up", "--secure-port", "0"][..], &["store", "check"], &["store", "defrag"]]
    {
        let text = refusal(namespaced(SETPOINT), arguments, data.path());
        assert!(text.contains("mount it for writing, or choose another folder"), "{text}");
        assert!(text.contains("Read-only file system"), "{text}");
    }
    // Nor can a folder be created there.
    let inner = data.path().join("inner");
    let text = refusal(namespaced(SETPOINT), &["up", "--secure-port", "0"], &inner);
    assert!(text.contains("cannot make the folder"), "{text}");
}

/// A small separate disk, in a mount namespace that lives as long as this value.
struct SmallDisk {
    holder: Child,
    folder: tempfile::TempDir,
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl SmallDisk {
    /// `None` if nothing can be mounted.
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount =
            format!("mount -t tmpfs -o size={size} tmpfs \"$0\" && echo mounted && exec cat");
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &mount]).arg(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().ok()?;
        let mut line = String::new();
        let out = holder.stdout.take()?;
        BufReader::new(out).read_line(&mut line).ok()?;
        let disk = Self { holder, folder };
        (line == "mounted\n").then_some(disk)
    }

    /// The program, run where the disk is mounted.
    fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--mount", "--preserve-credentials", "--target"]);
        command.arg(self.holder.id().to_string()).arg(SETPOINT);
        command
    }

    fn start(&self) -> Server {
        let options: [&OsStr; 2] = ["--data".as_ref(), self.folder.path().as_os_str()];
        Server::start_in(self.command(), &options)
    }

    /// A file on the disk, seen from outside the namespace.
    fn path(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.folder.path().strip_prefix("/").unwrap()).join(name)
    }

    /// Fills the disk completely.
    fn fill(&self) {
        let mut filler = fs::File::create(self.path("filler")).unwrap();
        while filler.write_all(&[1; 4096]).is_ok() {}
        while filler.write_all(&[1]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.path("filler")).unwrap();
    }
}

/// A running watch: its lines as they arrive.
fn watch(server: &Server, from: &str) -> BufReader<impl Read + use<>> {
    let mut stream = raw::connect(server);
    let request = format!(
        "GET {PATH}?watch=1&resourceVersion={from} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// The next event of a watch: its type and the object's name.
fn event(lines: &mut impl BufRead) -> (String, String) {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the watch has ended");
        // The lines in between are headers and chunk sizes.
        if let Ok(event) = serde_json::from_str::<Value>(&line)
            && let (Some(kind), Some(name)) =
                (event["type"].as_str(), event["object"]["metadata"]["name"].as_str())
        {
            return (kind.to_owned(), name.to_owned());
        }
    }
}

#[test]
fn full_disk_refuses_only_writes_until_there_is_room() {
    let Some(disk) = SmallDisk::new("12m") else {
        println!("skipped: nothing can be mounted here");
        return;
    };
    let mut server = disk.start();
    let first = create(&server, "first", 300);
    assert_eq!(first.code, 201, "{first:?}");
    let first: Value = serde_json::from_str(&first.body).unwrap();
    let mut events = watch(&server, first["metadata"]["resourceVersion"].as_str().unwrap());

    disk.fill();
    let (mut made, mut refused) = (vec!["first".to_owned()], Vec::new());
    // Free space within the file is used first.
    for n in 0.. {
        let name = format!("full-{n}");
        let answer = create(&server, &name, 60_000);
        if answer.code == 201 {
            assert!(n < 1000, "the disk never becomes full");
            made.push(name);
            continue;
        }
        assert_eq!(answer.code, 507, "{answer:?}");
        let status: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(status["reason"], "InsufficientStorage", "{status}");
        assert!(answer.message().contains("the store has no room"), "{status}");
        refused.push(name);
        if refused.len() == 5 {
            break;
        }
    }
    // Reads and the watch continue.
    for name in &made {
        assert_eq!(raw::get(&server, &format!("{PATH}/{name}")).code, 200, "{name}");
    }
    for name in &refused {
        assert_eq!(raw::get(&server, &format!("{PATH}/{name}")).code, 404, "{name}");
    }
    let list: Value = serde_json::from_str(&raw::get(&server, PATH).body).unwrap();
    let n_listed = list["items"].as_array().unwrap().iter();
    let n_listed = n_listed.filter(|item| item["metadata"]["name"] != "kube-root-ca.crt").count();
    assert_eq!(n_listed, made.len());
    for name in &made[1..] {
        assert_eq!(event(&mut events), ("ADDED".to_owned(), name.clone()));
    }

    disk.free();
    let started = Instant::now();
    while create(&server, "after", 60_000).code != 201 {
        assert!(started.elapsed() < PATIENCE, "it does not recover: {}", server.log());
    }
    made.push("after".to_owned());
    assert_eq!(event(&mut events), ("ADDED".to_owned(), "after".to_owned()));
    assert!(server.stop("TERM").success(), "{}", server.log());

    // Also after a restart on a disk that is full again.
    disk.fill();
    let server = disk.start();
    for name in &made {
        assert_eq!(raw::get(&server, &format!("{PATH}/{name}")).code, 200, "{name}");
    }
    for name in &refused {
        assert_eq!(raw::get(&server, &format!("{PATH}/{name}")).code, 404, "{name}");
    }
}

#[test]
fn store_is_not_created_on_a_full_disk() {
    let Some(disk) = SmallDisk::new("4m") else {
        println!("skipped: nothing can be mounted here");
        return;
    };
    disk.fill();
    let mut command = disk.command();
    let output =
        command.args(["up", "--secure-port", "0", "--data"]).arg(disk.folder.path()).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("make room, or choose another folder"), "{text}");
    // Nothing remains that looks like a store.
    disk.free();
    assert_eq!(fs::read_dir(disk.path("")).unwrap().count(), 0);
    let server = disk.start();
    assert_eq!(create(&server, "first", 10).code, 201);
}
