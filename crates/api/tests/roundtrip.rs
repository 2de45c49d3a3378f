//! Objects made up from the schemas come back from the types as they were: every field of every kind is known, absent
//! stays absent, and explicit zeros, falses, nulls and empty lists stay explicit.

mod support;

use api::testing::{Optional, values};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use support::{Kind, bodies, kinds};

/// How deep optional fields are filled in at random; below, only what is required.
const DEPTH: u32 = 9;

#[test]
fn random_objects_come_back_as_they_were() {
    for kind in kinds().into_iter().chain(bodies()) {
        let strategy = object(&kind, DEPTH, Optional::Sometimes);
        let mut runner =
            TestRunner::new(Config { cases: testkit::soak::cases(48), failure_persistence: None, ..Config::default() });
        runner.run(&strategy, |sent| comes_back(&kind, sent)).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    }
}

/// One object with every field the schema knows: nothing can hide behind a random choice.
#[test]
fn full_objects_come_back_as_they_were() {
    for kind in kinds().into_iter().chain(bodies()) {
        let strategy = object(&kind, u32::MAX, Optional::Always);
        let mut runner =
            TestRunner::new(Config { cases: testkit::soak::cases(2), failure_persistence: None, ..Config::default() });
        runner.run(&strategy, |sent| comes_back(&kind, sent)).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
    }
}

fn comes_back(kind: &Kind, sent: Value) -> Result<(), TestCaseError> {
    let problems = support::validate(&(kind.schema)(), &sent);
    prop_assert!(problems.is_empty(), "the generator made an invalid object: {problems:?}");
    let (again, unknown) = (kind.round_trip)(sent.clone()).map_err(TestCaseError::fail)?;
    prop_assert!(unknown.is_empty(), "unknown to the types: {unknown:?}");
    prop_assert_eq!(again, sent);
    Ok(())
}

fn object(kind: &Kind, depth: u32, optional: Optional) -> BoxedStrategy<Value> {
    let any = values(&(kind.schema)(), depth, optional);
    let (name, Some(api_version)) = (kind.name, kind.api_version) else { return any };
    any.prop_map(move |mut object| {
        object["kind"] = name.into();
        object["apiVersion"] = api_version.into();
        object["metadata"] = json!({ "name": "x" });
        object
    })
    .boxed()
}
