//! The control socket: how `rbdgate status`, `rbdgate reload` and `rbdgate disk` reach a running gateway.
//!
//! A Unix socket, mode 0600. One request per connection: a line of a word and what it needs; the answer is one JSON object,
//! `{"ok": …}` or `{"error": "…"}`, and the end of the stream.

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::config::CONTROL;

/// A request with a target's or a disk's name is well under this.
const LONGEST_LINE: u64 = 2048;
/// A status of 2,000 sessions and 1,000 LUNs is well under this.
const LARGEST_ANSWER: u64 = 16 << 20;

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The state of the gateway, as [`crate::status::Status`].
    Status,
    /// Read the configuration file again; answered with a sentence.
    Reload,
    /// Send logins elsewhere, or no longer; answered with a sentence.
    Redirect(Redirect),
    /// Give a disk that is in use another size; answered with a sentence.
    Resize {
        /// Its name in the configuration.
        disk: String,
        /// Bytes.
        size: u64,
        /// It may become smaller.
        shrink: bool,
    },
}

/// A redirection to be set or cleared.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Redirect {
    /// iSCSI name of the target; `None`: of every target that has none of its own.
    pub target: Option<String>,
    /// Where logins go; `None`: they are taken here again.
    pub address: Option<SocketAddr>,
    /// For good, instead of for the login at hand.
    pub permanent: bool,
    /// Also ask the initiators of existing sessions to log out.
    pub log_out: bool,
}

impl Command {
    /// The line that asks for it.
    fn line(&self) -> anyhow::Result<String> {
        Ok(match self {
            Self::Status => "status".into(),
            Self::Reload => "reload".into(),
            Self::Redirect(redirect) => format!("redirect {}", serde_json::to_string(redirect)?),
            Self::Resize { disk, size, shrink } => {
                format!("resize {size} {} {disk}", if *shrink { "shrink" } else { "grow" })
            }
        })
    }

    fn from_line(line: &str) -> Option<Self> {
        if let Some(wanted) = line.strip_prefix("redirect ") {
            return serde_json::from_str(wanted).ok().map(Self::Redirect);
        }
        let mut words = line.splitn(4, ' ');
        match (words.next()?, words.next(), words.next(), words.next()) {
            ("status", None, ..) => Some(Self::Status),
            ("reload", None, ..) => Some(Self::Reload),
            ("resize", Some(size), Some(how @ ("shrink" | "grow")), Some(disk)) => {
                Some(Self::Resize { disk: disk.into(), size: size.parse().ok()?, shrink: how == "shrink" })
            }
            _ => None,
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// Where a demo puts its socket: the user's runtime folder, else a name of the user's own in the temporary folder.
pub fn demo_socket() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(folder) => folder.join("rbdgate-demo.sock"),
        None => std::env::temp_dir().join(format!("rbdgate-demo-{}.sock", nix::unistd::Uid::current())),
    }
}

/// Asks the gateway at `socket`, by default a running demo, else the service.
pub fn ask<T: DeserializeOwned>(socket: Option<&Path>, command: &Command) -> anyhow::Result<T> {
    let mut stream = match socket {
        Some(path) => {
            UnixStream::connect(path).with_context(|| format!("no gateway answers at {}", path.display()))?
        }
        None => UnixStream::connect(demo_socket()).or_else(|_| UnixStream::connect(CONTROL)).with_context(
            || format!("no gateway answers at {CONTROL}; start one, or name its socket with --control"),
        )?,
    };
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    writeln!(stream, "{}", command.line()?)?;
    let mut text = String::new();
    BufReader::new(stream.take(LARGEST_ANSWER))
        .read_to_string(&mut text)
        .context("the gateway did not answer")?;
    match serde_json::from_str(&text).context("the gateway's answer is cut short")? {
        Answer::Ok(value) => serde_json::from_value(value).context("the gateway is of another version"),
        Answer::Error(message) => Err(anyhow!(message)),
    }
}

/// The listening end. The socket file goes when it is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Binds `path`; a socket that a dead process has left there is replaced, a live one is not.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        if socket && UnixStream::connect(path).is_err() {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.into() })
    }

    /// The next request; the connection is answered through it.
    pub async fn next(&self) -> io::Result<Asked> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let mut line = String::new();
            let mut reader = tokio::io::BufReader::new(stream);
            let read = tokio::time::timeout(
                Duration::from_secs(2),
                (&mut reader).take(LONGEST_LINE).read_line(&mut line),
            )
            .await;
            let stream = reader.into_inner();
            if !matches!(read, Ok(Ok(_))) {
                continue;
            }
            match Command::from_line(line.trim()) {
                Some(command) => return Ok(Asked { command, stream }),
                None => {
                    let message = format!(
                        "\"{}\" is not understood; status, reload, redirect, resize",
                        line.trim().escape_debug()
                    );
                    send(stream, &Answer::Error(message)).await;
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// One request, to be answered.
#[derive(Debug)]
pub struct Asked {
    /// What is wanted.
    pub command: Command,
    stream: tokio::net::UnixStream,
}

impl Asked {
    /// Answers it. A client that has gone away is none of our business.
    pub async fn answer<T: Serialize>(self, result: anyhow::Result<T>) {
        let answer = match result.and_then(|value| Ok(serde_json::to_value(value)?)) {
            Ok(value) => Answer::Ok(value),
            Err(error) => Answer::Error(format!("{error:#}")),
        };
        send(self.stream, &answer).await;
    }
}

async fn send(mut stream: tokio::net::UnixStream, answer: &Answer) {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    // A client that does not read must not hold the supervisor.
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&text)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn exchange(line: &'static str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let server = Server::bind(&path).unwrap();
        let client = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        tokio::select! {
            asked = server.next() => asked.unwrap().answer(Ok("done")).await,
            () = tokio::time::sleep(Duration::from_secs(3)) => {}
        }
        client.await.unwrap()
    }

    #[tokio::test]
    async fn a_request_is_answered_once() {
        assert_eq!(exchange("reload\n").await, r#"{"ok":"done"}"#);
    }

    #[test]
    fn a_redirect_comes_over_as_it_was_asked() {
        let redirect = Command::Redirect(Redirect {
            target: Some("iqn.2026-01.com.example:a".into()),
            address: Some("[2001:db8::1]:3260".parse().unwrap()),
            permanent: true,
            log_out: false,
        });
        assert_eq!(Command::from_line(&redirect.line().unwrap()), Some(redirect));
        assert_eq!(Command::from_line("redirect {}"), None);
        assert_eq!(Command::from_line("status now"), None);
    }

    #[tokio::test]
    async fn nonsense_is_answered_with_the_words_that_are_understood() {
        assert!(exchange("selfdestruct\n").await.contains("status, reload"));
    }

    #[test]
    fn a_line_says_what_the_command_was() {
        let resize = |shrink| Command::Resize { disk: "my disk".into(), size: 1 << 40, shrink };
        for command in [Command::Status, Command::Reload, resize(true), resize(false)] {
            assert_eq!(Command::from_line(&command.line().unwrap()), Some(command));
        }
        for line in ["", "status now", "resize", "resize 1 grow", "resize x grow d", "resize 1 cut d"] {
            assert_eq!(Command::from_line(line), None, "{line}");
        }
    }

    #[tokio::test]
    async fn a_dead_process_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = Server::bind(&path).unwrap();
        assert_eq!(Server::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(live);
        assert!(!path.exists());
    }
}
