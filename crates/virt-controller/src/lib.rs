//! The controllers of virtual machines. So far their decisions, which are pure; the parts that act follow.

pub mod vm;
