// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Watches a migration: steps on a terminal, lines elsewhere, until it ends or Ctrl-C.

use std::io;
use std::pin::pin;

use daemon::cli::screen;
use sdc_clients::migrations::{Event, Migrations, News, watch};
use sdc_clients::{Error, Jitter};

use super::args::NAME;
use super::next;
use super::plain::{self, Ending};
use super::show::Style;
use super::steps::{Frame, Steps};

/// How watching ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Watched {
    /// The migration ended, or waits for a person.
    Ended(Ending),
    /// Ctrl-C: it goes on.
    Left,
}

/// Why watching failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Blind {
    /// The service refuses.
    #[error("cannot watch the migration")]
    Service(#[from] Error),
    /// Stdout is gone.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// The stream ended without saying how.
    #[error("the watch ended before the migration did; see: sdc-migrate get")]
    Cut,
}

/// What a watch shows.
enum View {
    Lines,
    Steps(Box<Steps>, Frame, Style),
}

/// Watches the migration of a VM. `action` is what was just asked for: one that removes the record is done
/// when there is none.
pub(super) async fn follow(
    migrations: &Migrations,
    vm: &str,
    action: Option<&str>,
    style: Style,
) -> Result<Watched, Blind> {
    let mut watcher = watch(migrations, vm, Jitter::from_entropy());
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut view = match style.ansi && style.screen.is_terminal {
        true => View::Steps(Box::default(), Frame::default(), style),
        false => View::Lines,
    };
    let mut is_lost = false;
    loop {
        // Both arms are cancel-safe.
        let news = tokio::select! {
            news = watcher.next() => news,
            _ = &mut interrupted => {
                view.close()?;
                return Ok(Watched::Left);
            }
        };
        match news {
            Ok(Some(News::Opened)) => {
                is_lost = false;
                view.reread(migrations, vm).await?;
            }
            Ok(Some(News::Lost(error))) => {
                if !std::mem::replace(&mut is_lost, true) {
                    view.close()?;
                    eprintln!("{NAME}: {error}; trying again until it answers");
                }
            }
            Ok(Some(News::Event(Event::End { phase, state, message }))) => {
                view.reread(migrations, vm).await?;
                view.end(&state)?;
                let mut ending = plain::ending(&phase, &state, message.as_deref());
                ending.is_failure |= plain::is_of_another(action, &phase);
                return Ok(Watched::Ended(ending));
            }
            Ok(Some(News::Event(event))) => view.show(&event, migrations, vm).await?,
            Ok(None) => return Err(Blind::Cut),
            Err(error) => match action.filter(|_| error.is_not_found_resource()) {
                Some(action @ ("abort" | "rollback" | "rescue")) => {
                    view.end("successful")?;
                    return Ok(Watched::Ended(plain::ending(action, "successful", None)));
                }
                _ => return Err(error.into()),
            },
        }
    }
}

impl View {
    /// Reads the history again; a record that went leaves it as it is.
    async fn reread(&mut self, migrations: &Migrations, vm: &str) -> Result<(), Blind> {
        let View::Steps(steps, ..) = self else { return Ok(()) };
        match migrations.get(vm).await {
            Ok(migration) => {
                steps.reread(&migration);
                if let Some(silence) = next::of_silence(&migration) {
                    steps.tell(&silence);
                }
            }
            Err(error) if error.is_not_found_resource() => {}
            Err(error) => eprintln!("{NAME}: {error}"),
        }
        self.draw()
    }

    async fn show(&mut self, event: &Event, from: &Migrations, vm: &str) -> Result<(), Blind> {
        match self {
            View::Lines => {
                let line = plain::line(event).map(|line| line + "\n");
                Ok(screen::write(&line.unwrap_or_default())?)
            }
            View::Steps(steps, ..) => match event {
                Event::Progress(progress) if steps.take(progress) => self.reread(from, vm).await,
                Event::Progress(_) => self.draw(),
                other => {
                    self.close()?;
                    let line = plain::line(other).map(|line| line + "\n");
                    Ok(screen::write(&line.unwrap_or_default())?)
                }
            },
        }
    }

    fn end(&mut self, state: &str) -> Result<(), Blind> {
        if let View::Steps(steps, ..) = self {
            steps.end(state);
            self.draw()?;
        }
        self.close()
    }

    fn draw(&mut self) -> Result<(), Blind> {
        let View::Steps(steps, frame, style) = self else { return Ok(()) };
        Ok(screen::write(&frame.draw(&steps.lines(style.screen)))?)
    }

    fn close(&mut self) -> Result<(), Blind> {
        let View::Steps(_, frame, _) = self else { return Ok(()) };
        Ok(screen::write(frame.close())?)
    }
}
