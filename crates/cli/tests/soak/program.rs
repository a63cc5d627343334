//! The program, its resource usage, and a client.

use crate::ready_line;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running `setpoint up --data`; killed when dropped.
pub(crate) struct Program {
    process: Child,
    data: PathBuf,
    log: PathBuf,
    plain: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Its resource usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight {
    /// Resident memory.
    pub resident_kib: u64,
    /// Size of the data folder.
    pub file_bytes: u64,
    /// Open files and sockets.
    pub n_files: usize,
}

/// Statistics of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stat {
    /// The newest revision.
    pub revision: u64,
    /// The oldest readable revision.
    pub oldest: u64,
}

impl Program {
    /// Starts it in a folder and waits until it is ready.
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        let (data, log) = (folder.join("data"), folder.join("log"));
        let mut process = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            // One arena, so that resident memory shows what the server uses, not which thread's
            // arena a response was made in.
            .env("MALLOC_ARENA_MAX", "1")
            .args(["up", "--secure-port", "0", "--insecure-port", "0"])
            .args(options)
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .arg("--data")
            .arg(&data)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((_, Some(plain))) = ready_line::urls(&line) else {
            panic!("the ready line is {line:?}");
        };
        Self { process, data, log, plain }
    }

    pub(crate) fn weight(&self) -> Weight {
        let proc = PathBuf::from(format!("/proc/{}", self.process.id()));
        let status = std::fs::read_to_string(proc.join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident_kib = line.trim().trim_end_matches(" kB").parse().unwrap();
        let files = std::fs::read_dir(&self.data).unwrap();
        let file_bytes = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        let n_files = std::fs::read_dir(proc.join("fd")).unwrap().count();
        Weight { resident_kib, file_bytes, n_files }
    }

    /// The store's statistics.
    pub(crate) fn stat(&self) -> Stat {
        let mut stat = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        let said = stat.args(["store", "stat", "-o", "json", "--data"]).arg(&self.data).output();
        let said: Value = serde_json::from_slice(&said.unwrap().stdout).unwrap();
        println!("{said}");
        let number = |name: &str| said[name].as_u64().unwrap();
        Stat { revision: number("revision"), oldest: number("oldestRevision") }
    }

    /// Its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Stops it gracefully and checks its data.
    pub(crate) fn stop(mut self) {
        let sent = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success());
        assert!(self.process.wait().unwrap().success(), "{}", self.log());
        let mut check = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        let checked = check.args(["store", "check", "--data"]).arg(&self.data).output().unwrap();
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success() && text.contains("is intact"), "{checked:?}");
        println!("{text}");
    }

    pub(crate) fn client(&self) -> Asker {
        Asker {
            client: Client::builder(TokioExecutor::new()).build_http(),
            plain: self.plain.clone(),
        }
    }
}

/// A client of the plain port, with separate connections.
#[derive(Clone)]
pub(crate) struct Asker {
    client: Client<HttpConnector, Full<Bytes>>,
    plain: String,
}

impl Asker {
    /// Sends a request that must be answered; the response body is a stream.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Incoming) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.plain))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .unwrap();
        let answer = self.client.request(request).await.unwrap();
        (answer.status(), answer.into_body())
    }

    /// Sends a request that must succeed; returns the response.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = self.send(method, path, body).await;
        let answer = answer.collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(code.is_success(), "{method} {path}: {code} {answer}");
        answer
    }
}
