//! Pods with a real OCI runtime: needs root, runc and cgroups.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do; the lints exempt functions marked as tests only"
)]

mod ends;
mod image;
mod lives;
mod roots;
mod support;

use testkit::{Harness, Need, tests};

fn main() -> std::process::ExitCode {
    let harness = Harness::default().needing(&[Need::Root, Need::Program("runc")]);
    harness.on_own_machine().run(tests![
        async ends::a_container_runs_and_its_exit_code_and_output_are_kept,
        async ends::a_container_that_takes_too_much_memory_is_ended_and_that_is_told,
        async ends::a_pod_has_a_limit_of_its_own,
        async ends::a_signal_reaches_the_first_process,
        async ends::a_container_that_cannot_be_started_says_why,
        async ends::the_last_words_are_the_file_s_or_else_the_end_of_the_log,
        async ends::the_end_of_a_pod_ends_all_that_runs_in_it,
        async ends::a_container_that_wants_a_terminal_has_one,
        async image::each_container_writes_to_its_own_copy_of_an_image,
        async lives::an_attempt_that_is_asked_for_again_and_again_runs_once,
        async lives::the_next_agent_finds_every_pod_and_what_happened_meanwhile,
        async lives::containers_do_not_outlive_their_shim,
        async lives::a_shim_that_died_while_no_agent_was_there_leaves_nothing_running,
        async lives::a_shim_that_is_asked_to_end_ends_its_containers_first,
        async lives::a_command_in_a_container_answers_or_runs_out_of_time,
        async lives::a_runtime_that_cannot_run_containers_is_told_from_one_that_can,
        async lives::a_shim_that_dies_while_it_starts_a_container_leaves_nothing_running,
        async roots::the_machine_s_root_shows_its_programs_and_nothing_else,
        async roots::mounts_are_read_only_or_not_as_asked,
        async roots::a_pod_has_a_network_of_its_own_unless_it_wants_the_machine_s,
        async roots::containers_of_a_pod_share_network_and_memory_but_not_processes,
        async roots::devices_are_those_that_were_asked_for,
        async roots::system_calls_are_refused_to_a_container_that_asks_for_it,
    ])
}
