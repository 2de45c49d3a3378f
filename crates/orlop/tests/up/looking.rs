//! The comparison that follows every test, judged itself.

use anyhow::{Context as _, Result, ensure};
use testkit::test_host::{LINK, MOUNT, TABLE, namespaces, outside};
use testkit::waiting::until;

use super::Test;
use super::leftovers::Leftovers;
use super::test_host::processes::command_line;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("nothing_outside_is_within_reach", nothing_outside_is_within_reach),
    ("what_a_rule_has_counted_is_no_new_rule", what_a_rule_has_counted_is_no_new_rule),
    ("what_is_left_over_and_what_is_taken_away_are_told", what_is_left_over_and_what_is_taken_away_are_told),
    ("a_loss_of_power_takes_only_what_came_since", a_loss_of_power_takes_only_what_came_since),
];

fn run(program: &str, words: &str) -> Result<String> {
    e2e::output(std::process::Command::new(program).args(words.split(' ')))
}

/// Where the machine has a file system mounted.
fn mounted() -> String {
    std::env::temp_dir().join(MOUNT).display().to_string()
}

fn nothing_outside_is_within_reach() -> Result<()> {
    let (ours, others) = (namespaces(), outside());
    ensure!(ours.len() == others.len() && ours.iter().all(|one| !others.contains(one)), "{ours:?} {others:?}");
    Ok(())
}

fn what_a_rule_has_counted_is_no_new_rule() -> Result<()> {
    let counted = || run("nft", &format!("list table {TABLE}"));
    let (before, numbers) = (Leftovers::look()?, counted()?);
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    std::net::TcpStream::connect(listener.local_addr()?)?;
    ensure!(counted()? != numbers, "nothing was counted");
    before.compare()
}

fn what_is_left_over_and_what_is_taken_away_are_told() -> Result<()> {
    let before = Leftovers::look()?;
    let differs = |kind: &str| -> Result<Vec<String>> {
        let all = before.differences(&Leftovers::look()?);
        Ok(all.into_iter().filter(|line| line.contains(&format!(": {kind} "))).collect())
    };
    run("nft", &format!("add rule {TABLE} forward counter drop"))?;
    let rule = format!("rule table {TABLE} | chain forward | counter drop");
    ensure!(differs("rule")? == [format!("left over: {rule}")], "{:?}", differs("rule"));
    // The same once more is one more.
    run("nft", &format!("add rule {TABLE} forward counter drop"))?;
    ensure!(differs("rule")?.len() == 2);
    run("nft", &format!("flush chain {TABLE} forward"))?;
    let taken = format!("taken away: rule table {TABLE} | chain forward | counter accept comment \"kept\"");
    ensure!(differs("rule")? == [taken], "{:?}", differs("rule"));
    run("nft", &format!("add rule {TABLE} forward counter accept comment \"kept\""))?;

    run("ip", &format!("link set {LINK} name other0"))?;
    ensure!(differs("link")? == ["left over: link other0".to_owned(), format!("taken away: link {LINK}")]);
    run("ip", &format!("link set other0 name {LINK}"))?;

    run("umount", &mounted())?;
    ensure!(differs("mount")? == [format!("taken away: mount {}", mounted())]);
    run("mount", &format!("-t tmpfs tmpfs {}", mounted()))?;

    let mut process = std::process::Command::new("sleep").arg("infinity").spawn()?;
    // A moment after it was started it has no arguments yet.
    until("the new process has its arguments", || !command_line(process.id()).is_empty());
    let told = differs("process")?;
    process.kill()?;
    process.wait()?;
    ensure!(told == [format!("left over: process {} sleep infinity ", process.id())], "{told:?}");
    before.compare()
}

fn a_loss_of_power_takes_only_what_came_since() -> Result<()> {
    let before = Leftovers::look()?;
    let folder = tempfile::tempdir()?;
    let place = folder.path().to_str().context("a path")?;
    run("mount", &format!("-t tmpfs tmpfs {place}"))?;
    run("ip", "link add pair0 type veth peer name pair1")?;
    run("nft", "add table inet made")?;
    let mut process = std::process::Command::new("sleep").arg("infinity").spawn()?;
    ensure!(before.differences(&Leftovers::look()?).len() == 5);
    before.cut_power()?;
    ensure!(!process.wait()?.success());
    before.compare()
}
