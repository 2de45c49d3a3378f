//! Requests that mean harm, sent to a server in a process of its own by somebody who may send them, and measured from outside.
//! Whatever one of them is answered: until it is, requests of others are answered again and again, the process uses no more than
//! a factor of what an honest request of the same size uses, and afterwards the server starts again on the same data and all of
//! it can be deleted.
//!
//! `crates/apiserver/tests/hostile.rs` has the same requests in more variants, with what they are answered; there the server
//! runs in the process of the test.

#[path = "hostile/cases.rs"]
mod cases;
#[path = "hostile/held.rs"]
mod held;
#[path = "hostile/measure.rs"]
mod measure;
#[path = "hostile/scene.rs"]
mod scene;

use std::time::Duration;

use measure::{Limits, USUAL, Usage, judge};
use scene::{Ask, Scene, twins};

/// Requests that belong together.
struct Case {
    /// Of the server.
    flags: &'static [&'static str],
    /// What must be there before; nobody measures it.
    before: Vec<Ask>,
    /// Sent one after the other.
    requests: Vec<Ask>,
}

impl Case {
    fn new(requests: impl IntoIterator<Item = Ask>) -> Self {
        Self { flags: &[], before: Vec::new(), requests: requests.into_iter().collect() }
    }

    fn before(self, before: impl IntoIterator<Item = Ask>) -> Self {
        Self { before: before.into_iter().collect(), ..self }
    }

    fn flags(self, flags: &'static [&'static str]) -> Self {
        Self { flags, ..self }
    }

    async fn run(self) {
        let twins = twins(&self.requests);
        let (honest, quiet) = self.measured(&twins).await;
        drop(quiet);
        let (hostile, scene) = self.measured(&self.requests).await;
        if let Err(excess) = judge(USUAL, honest, hostile) {
            panic!("{excess}");
        }
        scene.end().await;
    }

    /// Sends requests to a server that has seen nothing else: memory that was used once and is free stays with a process.
    async fn measured(&self, requests: &[Ask]) -> (Usage, Scene) {
        let scene = Scene::begin(self.flags).await;
        scene.send(&self.before).await;
        let ((), usage) = scene.measured(scene.send(requests)).await;
        (usage, scene)
    }
}

/// One test for each.
macro_rules! cases {
    ($($(#[$meta:meta])* $name:ident)*) => {$(
        $(#[$meta])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            cases::$name().run().await;
        }
    )*};
}

cases! {
    copies_that_double_the_depth
    copies_that_double_the_depth_less_often
    owners_that_all_control
    a_list_of_many_finalizers
    a_list_of_many_items_with_a_key
    a_long_key_above_fields_given_twice
    a_volume_named_as_a_folder_of_the_machine
    values_that_are_too_deep
    values_that_are_too_deep_within_protobuf
    removals_from_the_front_of_a_long_list
    references_to_references_in_yaml
    documents_of_another_form
    methods_that_a_client_invents
    the_large_document_of_all_kinds
    a_pod_with_many_problems
    defaults_for_many_items
    filters_within_filters_of_a_column
    replicas_at_a_place_that_is_too_deep
    a_definition_with_many_columns
    columns_that_all_show_the_same
    fields_that_are_required_twice
    a_long_name_above_many_problems_of_a_schema
    rules_on_every_level_of_a_schema
    many_rules_for_many_fields
    a_long_key_above_a_long_list
}

/// What is measured is what was used: many honest requests are found to be more than ten times one of them, and those of a
/// megabyte to hold more than the bytes that were sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_expensive_is_found_to_be() {
    let without_floors = Limits { cpu: (10, Duration::ZERO), memory: (4, 0) };
    let body = |bytes: usize| Ask::new("POST", "", "", "x".repeat(bytes));
    let case = Case::new([]);
    let (one, _quiet) = case.measured(&twins(&[body(200_000)])).await;
    let (many, _busy) = case.measured(&twins(&vec![body(1_000_000); 20])).await;
    let excess = judge(without_floors, one, many).expect_err("a hundred times as many bytes").to_string();
    assert!(many.cpu > one.cpu * 10, "{excess}");
    let (small, _quiet) = case.measured(&twins(&[body(100)])).await;
    assert!(many.memory > small.memory + 1_000_000, "{many:?} {small:?}");
    // Others were answered as long as it lasted, and what was worked meanwhile is what it took.
    assert!(many.answered > one.answered && many.worked > one.worked, "{one:?} {many:?}");
}
