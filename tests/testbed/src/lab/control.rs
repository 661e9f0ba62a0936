// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The hands of a lab that is up: one task that does to its nodes what `svcadm`, `testbed break` and `testbed cure`
//! say at the socket in each node's directory, cures what is broken for a time only, and, once the lab is up, starts
//! what dies again and sends the nodes' heartbeats.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use daemon::exit;
use mocks::cnapi;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::broken::{Broken, Things, What};
use super::daemons::Death;
use super::error::LabError;
use super::smf::Site;

/// The socket in the directory of a node.
const SOCKET: &str = "lab.sock";
/// So many requests wait; who asks then waits too.
const ASKED: usize = 64;
/// cn-agent sends a heartbeat so often.
const BEAT: Duration = Duration::from_secs(5);
/// The longest request.
const MOST: u64 = 64 * 1024;

/// What somebody types.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    Svcadm {
        node: String,
        args: Vec<String>,
    },
    Break {
        what: What,
        name: String,
        node: String,
        span: Option<Duration>,
    },
    /// Without a kind: all that is broken.
    Cure {
        what: Option<What>,
        name: String,
        node: String,
    },
}

/// What he reads.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    code: u8,
    stdout: String,
    stderr: String,
}

/// What the hands are told.
#[derive(Debug)]
pub(super) enum Told {
    /// A node is there.
    Joined(Box<Site>),
    /// The lab is up: SMF keeps what runs, and nodes send heartbeats.
    Up,
    /// Somebody types.
    Typed(Typed),
}

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(super) struct Typed(Request, oneshot::Sender<Answer>);

/// Tells the hands. They end with the last of these.
pub(super) type Hands = mpsc::Sender<Told>;

/// Hands that do to these things what they are told, and are told of deaths.
pub(super) fn hands(things: Things, cnapi: cnapi::Store) -> (Hands, mpsc::Sender<Death>) {
    let ((sender, told), (deaths, died)) = (mpsc::channel(ASKED), mpsc::channel(ASKED));
    tokio::spawn(work(things, cnapi, told, died));
    (sender, deaths)
}

async fn work(
    mut things: Things,
    cnapi: cnapi::Store,
    mut told: mpsc::Receiver<Told>,
    mut died: mpsc::Receiver<Death>,
) {
    let (mut broken, mut is_up) = (Vec::<Broken>::new(), false);
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let due = broken.iter().filter_map(|it| it.until).min();
        let over = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        // Each arm is cancel-safe.
        tokio::select! {
            told = told.recv() => match told {
                None => return,
                Some(Told::Joined(site)) => things.sites.push(*site),
                Some(Told::Up) => is_up = true,
                Some(Told::Typed(Typed(request, answers))) => {
                    let answer = match done(&mut things, &mut broken, request).await {
                        Ok(answer) => answer,
                        Err(error) => {
                            let error = anyhow::Error::from(error);
                            Answer { code: exit::FAILED, stderr: format!("{error:#}"), ..Answer::default() }
                        }
                    };
                    // Who asked may be gone.
                    drop(answers.send(answer));
                }
            },
            Some(Death { cn, name, pid }) = died.recv() => {
                if let Some(site) = things.site(&cn).ok().filter(|_| is_up) {
                    // What cannot be started is not there; its log says why.
                    let _failed = site.died(name, pid).await;
                }
            }
            () = over => {
                let is_over = |it: &mut Broken| it.until.is_some_and(|until| until <= Instant::now());
                for it in broken.extract_if(.., is_over) {
                    // A VM that cannot be booted any more is not cured by a second try.
                    let _failed = things.cures(&it).await;
                }
            }
            _ = beats.tick(), if is_up => {
                for site in things.sites.iter().filter(|it| !things.silent.has(it.node.cn_uuid())) {
                    cnapi.beat(site.node.cn_uuid());
                }
            }
        }
    }
}

async fn done(
    things: &mut Things,
    broken: &mut Vec<Broken>,
    request: Request,
) -> Result<Answer, LabError> {
    let said = |stdout: String| Answer { stdout, ..Answer::default() };
    match request {
        Request::Svcadm { node, args } => {
            let done = things.site(&node)?.svcadm(&args).await?;
            let code = done.code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILED);
            Ok(Answer { code, stdout: done.stdout, stderr: done.stderr.trim_end().to_owned() })
        }
        Request::Break { what, name, node, span } => {
            let mut it = things.meant(what, &name, &node)?;
            if broken.iter().any(|other| other.is(&it)) {
                return Err(LabError::Broken(format!("{} is broken already", it.words())));
            }
            it.until = span.map(|span| Instant::now() + span);
            things.breaks(&mut it).await?;
            let ends = span.map_or("until".to_owned(), |it| {
                format!("for {}, or until", daemon::cli::span(it))
            });
            let text = format!("broken {ends}: testbed cure {}\n", it.words());
            broken.push(it);
            Ok(said(text))
        }
        Request::Cure { what, name, node } => {
            let wanted = match what {
                Some(what) => Some(things.meant(what, &name, &node)?),
                None => None,
            };
            let is_it = |it: &mut Broken| wanted.as_ref().is_none_or(|wanted| wanted.is(it));
            let cured: Vec<Broken> = broken.extract_if(.., is_it).collect();
            if let (Some(wanted), []) = (&wanted, cured.as_slice()) {
                return Err(LabError::Broken(format!("{} is not broken", wanted.words())));
            }
            let mut text = String::new();
            for it in &cured {
                things.cures(it).await?;
                text += &format!("cured: {}\n", it.words());
            }
            Ok(said(if text.is_empty() { "nothing is broken\n".to_owned() } else { text }))
        }
    }
}

/// Takes requests at the socket of a node, for as long as the set is kept.
pub(super) fn listen(dir: &Path, hands: Hands) -> std::io::Result<JoinSet<()>> {
    let listener = UnixListener::bind(dir.join(SOCKET))?;
    let mut set = JoinSet::new();
    set.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // One after the other, as the hands do it.
            let _gone = serve(stream, &hands).await;
        }
    });
    Ok(set)
}

async fn serve(stream: UnixStream, hands: &Hands) -> anyhow::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(MOST)).read_line(&mut line).await?;
    let (answers, answer) = oneshot::channel();
    hands.send(Told::Typed(Typed(serde_json::from_str(&line)?, answers))).await?;
    let answer = serde_json::to_string(&answer.await?)?;
    writer.write_all(answer.as_bytes()).await?;
    Ok(writer.shutdown().await?)
}

/// `testbed break`.
#[derive(Debug, Parser)]
#[command(
    name = "testbed break",
    about = "Breaks something in a lab that is up, until it is cured"
)]
struct Break {
    #[command(flatten)]
    place: Place,
    /// What
    #[arg(value_enum)]
    what: What,
    /// Which: the agent's program, the node (uuid, its beginning, host name), the volume or its storage VM
    name: Option<String>,
    /// Cure it after so long, such as 30s or 10m
    #[arg(long = "for", value_name = "T", value_parser = daemon::config::parse_span)]
    span: Option<Duration>,
}

/// `testbed cure`.
#[derive(Debug, Parser)]
#[command(name = "testbed cure", about = "Cures what was broken in a lab; without more, all of it")]
struct Cure {
    #[command(flatten)]
    place: Place,
    /// What
    #[arg(value_enum)]
    what: Option<What>,
    /// Which
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The directory of a node of the lab; the lab's own `testbed`, first on the PATH, knows it
    #[arg(long, value_name = "DIR")]
    cn: PathBuf,
    /// Another node than that of the directory, for an agent
    #[arg(long, value_name = "CN")]
    node: Option<String>,
}

impl Place {
    fn node(&self) -> anyhow::Result<String> {
        match &self.node {
            Some(node) => Ok(node.clone()),
            None => Ok(simnode::Node::open(&self.cn)?.cn_uuid().to_owned()),
        }
    }
}

/// Runs `testbed break`; the arguments start after that word.
pub fn breaks(args: &[OsString]) -> ExitCode {
    typed("testbed break", args, |it: Break| {
        let (what, name, span) = (it.what, it.name.clone().unwrap_or_default(), it.span);
        if name.is_empty() && matches!(what, What::Agent | What::StorageVm) {
            anyhow::bail!("which one?");
        }
        let node = it.place.node()?;
        Ok((it.place.cn, Request::Break { what, name, node, span }))
    })
}

/// Runs `testbed cure`; the arguments start after that word.
pub fn cures(args: &[OsString]) -> ExitCode {
    typed("testbed cure", args, |it: Cure| {
        let (node, name) = (it.place.node()?, it.name.unwrap_or_default());
        Ok((it.place.cn, Request::Cure { what: it.what, name, node }))
    })
}

/// Runs the lab's `svcadm`: its own first argument is the node's directory.
pub fn svcadm(args: &[OsString]) -> ExitCode {
    let mut args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    let cn = PathBuf::from(args.next().unwrap_or_default());
    finish("svcadm", || {
        let node = simnode::Node::open(&cn)?.cn_uuid().to_owned();
        Ok((cn, Request::Svcadm { node, args: args.collect() }))
    })
}

fn typed<A: Parser>(
    name: &str,
    args: &[OsString],
    request: impl FnOnce(A) -> anyhow::Result<(PathBuf, Request)>,
) -> ExitCode {
    match crate::arguments::parse(name, args) {
        Ok(args) => finish(name, || request(args)),
        Err(status) => status,
    }
}

/// Has the lab do it, and prints what it says.
fn finish(name: &str, request: impl FnOnce() -> anyhow::Result<(PathBuf, Request)>) -> ExitCode {
    let asked = request().and_then(|(cn, request)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(ask(&cn, &request))
    });
    match asked {
        Ok(answer) => {
            print!("{}", answer.stdout);
            match answer.stderr.as_str() {
                "" => {}
                own if own.starts_with(name) => eprintln!("{own}"),
                own => eprintln!("{name}: {own}"),
            }
            ExitCode::from(answer.code)
        }
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::from(exit::FAILED)
        }
    }
}

async fn ask(cn: &Path, request: &Request) -> anyhow::Result<Answer> {
    let socket = cn.join(SOCKET);
    let stream = UnixStream::connect(&socket).await;
    let mut stream = stream.with_context(|| format!("no lab is up at {}", cn.display()))?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    serde_json::from_str(&text).context("the lab gave no answer")
}
