// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line: wiring, and the operator's verbs. Holds are written to the disk by the verb
//! itself, so that they work while the daemon is off; everything else asks the daemon's loopback
//! listener.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Parser, Subcommand};
use daemon::{Lock, Shutdown, exit};
use jiff::{SignedDuration, Timestamp};
use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::Value;

use crate::agent::Agent;
use crate::config::{Config, DEFAULT_FILE};
use crate::holds::{Hold, HoldsFile};
use crate::status;

/// How often a missing configuration file is looked for, as the shipped agent does.
const CONFIG_POLL: Duration = Duration::from_secs(10);

#[derive(Parser, Debug)]
#[command(name = "net-agent", version, about = "Keeps NAPI's NIC records in step with the node")]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    files: Files,
}

#[derive(Args, Debug, Clone)]
struct Files {
    /// The agent's file, as config-agent writes it.
    #[arg(long, global = true, default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// Our own keys, when they are kept in a file of their own.
    #[arg(long, global = true)]
    policy: Option<PathBuf>,
    /// Read the configuration, say what is wrong with it, and end.
    #[arg(long, global = true)]
    check_config: bool,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run the daemon (the default).
    Serve,
    /// What the daemon has done and what it waits for, as JSON.
    Status,
    /// What it would do about each NIC, and the evidence.
    Plan(PlanArgs),
    /// RFD 58's name for the plan; it only ever runs dry from here.
    Reap {
        /// Only say what would be reaped.
        #[arg(long, required = true)]
        dry_run: bool,
        #[command(flatten)]
        plan: PlanArgs,
    },
    /// Leave a VM's NICs (or the whole node's) alone.
    Hold {
        /// The VM; without it, the whole node.
        #[arg(long)]
        vm: Option<String>,
        /// For how long (2h, 30m); without it, until released.
        #[arg(long = "for")]
        length: Option<String>,
        /// Why; shown wherever the hold is.
        #[arg(long)]
        reason: String,
    },
    /// Take a hold away.
    Release {
        /// The VM; without it, the hold on the whole node.
        #[arg(long)]
        vm: Option<String>,
    },
    /// The holds in force.
    Holds,
}

#[derive(Args, Debug)]
struct PlanArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Only this NIC.
    #[arg(long)]
    mac: Option<String>,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(err) if !err.use_stderr() => {
            print(&err.to_string());
            return ExitCode::SUCCESS;
        }
        Err(err) => {
            let text = err.to_string();
            // clap's first paragraph says what is wrong; the rest is the usage.
            let lines: Vec<_> =
                text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let wrong = lines.join(" ");
            eprintln!("net-agent: {} (see --help)", wrong.trim_start_matches("error: "));
            return ExitCode::from(exit::USAGE);
        }
    };
    if cli.files.check_config {
        return check(&cli.files);
    }
    let verb = cli.verb.unwrap_or(Verb::Serve);
    let done = match verb {
        Verb::Serve => return serve(&cli.files),
        Verb::Status => ask(&cli.files, "status").map(|page| show_json(&page)),
        Verb::Plan(args) | Verb::Reap { plan: args, .. } => {
            ask(&cli.files, "plan").and_then(|page| show_plan(page, &args))
        }
        Verb::Hold { vm, length, reason } => hold(&cli.files, vm, length.as_deref(), reason),
        Verb::Release { vm } => release(&cli.files, vm),
        Verb::Holds => holds(&cli.files),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            let one_line = format!("{err:#}").split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("net-agent: {one_line}");
            let usage = err.is::<daemon::ConfigError>() || err.is::<Usage>();
            ExitCode::from(if usage { exit::USAGE } else { exit::FAILED })
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// A reader that went away (`| head`) is no reason to panic.
fn print(text: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _reader_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn check(files: &Files) -> ExitCode {
    match Config::load(&files.config, files.policy.as_deref()) {
        Ok(config) => {
            for key in &config.unknown {
                eprintln!("net-agent: warning: {key}: unknown key");
            }
            print("configuration ok\n");
            ExitCode::SUCCESS
        }
        Err(err) => exit::report("net-agent", &err, exit::USAGE),
    }
}

fn load(files: &Files) -> anyhow::Result<Config> {
    Ok(Config::load(&files.config, files.policy.as_deref())?)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn ask(files: &Files, page: &'static str) -> anyhow::Result<Value> {
    let config = load(files)?;
    let base = format!("http://{}", config.status_listen);
    let answer = runtime()?.block_on(async {
        let http = Http::new(&base, "net-agent-cli")?.without_retries();
        http.execute(Call::get(&[page])).await?.json::<Value>("a JSON page")
    });
    answer.with_context(|| format!("no answer from the daemon at {}", config.status_listen))
}

fn show_json(page: &Value) {
    print(&format!("{page:#}\n"));
}

fn show_plan(mut page: Value, args: &PlanArgs) -> anyhow::Result<()> {
    if let (Some(mac), Some(list)) =
        (&args.mac, page.get_mut("decisions").and_then(Value::as_array_mut))
    {
        let mac: sdc_clients::MacAddr =
            mac.parse().map_err(|err| anyhow!(Usage(format!("--mac {mac}: {err}"))))?;
        let wanted = mac.to_string();
        list.retain(|d| d.get("mac").and_then(Value::as_str) == Some(&wanted));
    }
    if args.json {
        show_json(&page);
        return Ok(());
    }
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
    let mut out = format!("made {}; brake: {}\n", text(&page, "made"), text(&page, "brake"));
    for d in page.get("decisions").and_then(Value::as_array).into_iter().flatten() {
        let (mac, vm) = (text(d, "mac"), text(d, "vm"));
        out += &format!("{mac}  {vm}  {:<9}  {}\n", text(d, "action"), text(d, "reason"));
        for e in d.get("evidence").and_then(Value::as_array).into_iter().flatten() {
            let (guard, answer) = (text(e, "guard"), text(e, "answer"));
            out += &format!("    {guard:<4} {answer:<5} {}\n", text(e, "said"));
        }
    }
    print(&out);
    Ok(())
}

fn hold(
    files: &Files,
    vm: Option<String>,
    length: Option<&str>,
    reason: String,
) -> anyhow::Result<()> {
    let length = length
        .map(|text| {
            daemon::config::parse_span(text).map_err(|why| anyhow!(Usage(format!("--for: {why}"))))
        })
        .transpose()?
        .map(|span| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX));
    let file = HoldsFile::new(&load(files)?.state_dir);
    let held = file.hold(vm.map(|vm| vm.to_lowercase()), length, reason, Timestamp::now())?;
    print(&format!("{}\n", describe(&held)));
    Ok(())
}

fn release(files: &Files, vm: Option<String>) -> anyhow::Result<()> {
    let file = HoldsFile::new(&load(files)?.state_dir);
    let vm = vm.map(|vm| vm.to_lowercase());
    let released = file.release(vm.as_deref(), Timestamp::now())?;
    let what = vm.unwrap_or_else(|| "the node".to_owned());
    if released == 0 {
        return Err(anyhow!("there is no hold on {what}"));
    }
    print(&format!("released {what}\n"));
    Ok(())
}

fn holds(files: &Files) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let all = HoldsFile::new(&load(files)?.state_dir).read()?;
    let lines: String = all.in_force(now).map(|hold| describe(hold) + "\n").collect();
    print(if lines.is_empty() { "no holds\n" } else { &lines });
    Ok(())
}

fn describe(hold: &Hold) -> String {
    let what = hold.vm.as_deref().unwrap_or("the whole node");
    let until = hold.until.map_or_else(|| "until released".to_owned(), |at| format!("until {at}"));
    format!("held {what} {until}: {}", hold.reason)
}

fn serve(files: &Files) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(err) => {
            eprintln!("net-agent: {err:#}");
            return ExitCode::from(exit::FAILED);
        }
    };
    let code = runtime.block_on(async {
        let shutdown = Shutdown::new();
        if let Err(err) = shutdown.on_signals() {
            return exit::report("net-agent", &err, exit::FAILED);
        }
        let Some(config) = (match configured(files, &shutdown).await {
            Ok(config) => config,
            Err(err) => return exit::report("net-agent", &err, exit::config_code()),
        }) else {
            return ExitCode::SUCCESS;
        };
        match serve_with(config, shutdown).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(err) => {
                eprintln!("net-agent: {err:#}");
                ExitCode::from(exit::FAILED)
            }
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

/// Waits for the file (config-agent writes it late on a fresh node). None: told to stop first.
async fn configured(
    files: &Files,
    shutdown: &Shutdown,
) -> Result<Option<Config>, daemon::ConfigError> {
    let mut said = false;
    loop {
        match Config::load(&files.config, files.policy.as_deref()) {
            Err(daemon::ConfigError::Read { path, source })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                if !said {
                    daemon::log::init("net-agent", "info");
                    tracing::warn!(path = %path.display(), "waiting for the configuration file");
                    said = true;
                }
            }
            other => return other.map(Some),
        }
        // Both arms are cancel-safe.
        tokio::select! {
            () = shutdown.wait() => return Ok(None),
            () = tokio::time::sleep(CONFIG_POLL) => {}
        }
    }
}

async fn serve_with(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    daemon::log::init("net-agent", &config.log_level);
    for key in &config.unknown {
        tracing::warn!(key, "unknown key in the configuration");
    }
    std::fs::create_dir_all(&config.state_dir)
        .with_context(|| format!("state_dir {}", config.state_dir.display()))?;
    let _only_one = Lock::take(&config.state_dir.join("lock"))?;
    let listener = tokio::net::TcpListener::bind(config.status_listen)
        .await
        .with_context(|| format!("status.listen {}", config.status_listen))?;
    tracing::info!(
        address = %listener.local_addr()?,
        version = env!("CARGO_PKG_VERSION"),
        cn_uuid = config.cn_uuid,
        napi = config.napi_url,
        vmapi = ?config.vmapi,
        vminfod = config.vminfod_url,
        "listening"
    );
    let agent = Agent::new(config)?;
    let router = status::router(agent.pages());
    let stop = shutdown.clone();
    let server = tokio::spawn(async move {
        // Stopped by the shutdown; an idle keep-alive connection must not hold it up.
        tokio::select! {
            () = stop.wait() => Ok(()),
            ended = axum::serve(listener, router).into_future() => ended,
        }
    });
    agent.run(shutdown).await;
    server.await.context("status listener")?.context("status listener")?;
    tracing::info!("stopped");
    Ok(())
}
