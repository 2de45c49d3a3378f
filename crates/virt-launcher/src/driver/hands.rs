//! The driver's hands: carries out what QEMU is to do, in order, in a task of its own. The driver never waits for QEMU: what comes of
//! a command is an event, or the answer to whoever asked for it.

use hypervisor::agent::commands as agent_commands;
use hypervisor::qmp::commands::{ShutdownAction, Status};
use hypervisor::qmp::{Qmp, QmpError, commands};
use tokio::sync::{mpsc, oneshot, watch};

use super::{RequestError, SharedAgent};
use crate::domain::Domain;
use crate::lifecycle::Action;

/// What QEMU is to do.
pub(super) enum Order {
    /// These, until one fails.
    Act { actions: Vec<Action>, reply: Option<oneshot::Sender<Result<(), RequestError>>> },
    /// Say why the guest is stopped.
    AskWhy,
}

pub(super) struct Hands {
    pub(super) qmp: Qmp,
    pub(super) agent: SharedAgent,
    pub(super) domain: watch::Receiver<Domain>,
    /// How often the guest was asked to power off.
    pub(super) presses: u32,
    /// Disks are served until the guest runs here.
    pub(super) has_exports: bool,
}

impl Hands {
    /// Follows orders until nobody gives any.
    pub(super) async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>, stopped: mpsc::Sender<Status>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Act { actions, reply } => {
                    let done = self.act(&actions).await;
                    if let Err(error) = &done {
                        tracing::error!(%error, ?actions, "QEMU did not follow");
                    }
                    if let Some(reply) = reply {
                        // The caller may have gone away; the request is carried out all the same.
                        let _ = reply.send(done.map_err(RequestError::from));
                    }
                }
                Order::AskWhy => {
                    // A QEMU that does not answer ends soon, which is told.
                    if let Ok(status) = self.qmp.execute(commands::QueryStatus {}).await {
                        let _ = stopped.send(status).await;
                    }
                }
            }
        }
    }

    /// Carries these out, in order.
    pub(super) async fn act(&mut self, actions: &[Action]) -> Result<(), QmpError> {
        for action in actions {
            match action {
                Action::Continue => {
                    // If that failed when the guest was taken, it is not done yet.
                    self.stop_exports().await?;
                    self.qmp.execute(commands::Continue {}).await?;
                }
                Action::Stop => drop(self.qmp.execute(commands::Stop {}).await?),
                Action::Reset => drop(self.qmp.execute(commands::Reset {}).await?),
                Action::PressPower => self.press_power().await?,
                Action::PowerCycle => {
                    self.qmp.execute(commands::SetAction { shutdown: ShutdownAction::Pause }).await?;
                    self.qmp.execute(commands::PowerDown {}).await?;
                }
                Action::LetPowerOff => {
                    self.qmp.execute(commands::SetAction { shutdown: ShutdownAction::Poweroff }).await?;
                }
                Action::StopExports => self.stop_exports().await?,
                Action::SetClock => self.set_clock(),
                // The driver's own.
                Action::Keep(_) | Action::Publish | Action::Kill | Action::Abort => {}
            }
        }
        Ok(())
    }

    /// Asks the agent if there is one, which works in guests that ignore the button; else, and from the second time
    /// on, presses the button.
    async fn press_power(&mut self) -> Result<(), QmpError> {
        self.presses += 1;
        if self.domain.borrow().agent_connected && self.presses == 1 {
            let agent = self.agent.clone();
            let qmp = self.qmp.clone();
            // An agent may take its time to fail; nobody waits for it.
            tokio::spawn(async move {
                let shutdown = agent_commands::Shutdown { mode: "powerdown" };
                let sent = agent.lock().await.send(shutdown).await;
                if let Err(error) = sent {
                    tracing::warn!(%error, "the guest agent did not shut the guest down; pressing the power button");
                    let _ = qmp.execute(commands::PowerDown {}).await;
                }
            });
            return Ok(());
        }
        self.qmp.execute(commands::PowerDown {}).await.map(drop)
    }

    /// Nobody may write to the guest's disks any more when it runs.
    async fn stop_exports(&mut self) -> Result<(), QmpError> {
        if self.has_exports {
            self.qmp.execute(commands::NbdServerStop {}).await?;
            self.has_exports = false;
        }
        Ok(())
    }

    fn set_clock(&self) {
        let agent = self.agent.clone();
        tokio::spawn(async move {
            let mut agent = agent.lock().await;
            if let Err(error) = agent.execute(agent_commands::SetTime { time: nanoseconds() }).await {
                tracing::warn!(%error, "the guest agent did not set the guest's clock after its migration");
            }
        });
    }
}

/// The time to tell a guest, since 1970.
#[expect(clippy::disallowed_methods, reason = "the guest is told the machine's own time; nothing here depends on it")]
fn nanoseconds() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hypervisor::agent::Agent;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixStream;
    use tokio::sync::Mutex;

    use super::*;

    /// A QEMU that answers by its script, and what it was asked.
    async fn qemu(answers: Vec<Value>) -> (Qmp, tokio::task::JoinHandle<Vec<String>>) {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let peer = tokio::spawn(async move {
            let greeting = json!({ "QMP": { "version": { "qemu": { "micro": 0, "minor": 2, "major": 7 }, "package": "" }, "capabilities": [] } });
            let mut stream = BufReader::new(theirs);
            let mut asked = Vec::new();
            stream.get_mut().write_all(format!("{greeting}\r\n").as_bytes()).await.unwrap();
            for answer in [json!({ "return": {} })].into_iter().chain(answers) {
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
                let question: Value = serde_json::from_str(&line).unwrap();
                asked.push(question["execute"].as_str().unwrap().to_owned());
                let mut answer = answer;
                answer["id"] = question["id"].clone();
                stream.get_mut().write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
            }
            asked.split_off(1)
        });
        let (qmp, _) = hypervisor::qmp::connect(ours).await.unwrap();
        (qmp, peer)
    }

    #[tokio::test]
    async fn no_guest_runs_whose_disks_are_still_served() {
        let done = || json!({ "return": {} });
        let failed = json!({ "error": { "class": "GenericError", "desc": "busy" } });
        let (qmp, peer) = qemu(vec![failed, done(), done(), done()]).await;
        let agent = Arc::new(Mutex::new(Agent::new(UnixStream::pair().unwrap().0)));
        let (_publish, domain) = watch::channel(Domain::starting());
        let mut hands = Hands { qmp, agent, domain, presses: 0, has_exports: true };
        // A guest that is taken paused, and let run later.
        assert!(hands.act(&[Action::StopExports]).await.is_err());
        hands.act(&[Action::Continue]).await.unwrap();
        hands.act(&[Action::Continue]).await.unwrap();
        assert_eq!(peer.await.unwrap(), ["nbd-server-stop", "nbd-server-stop", "cont", "cont"]);
    }
}
