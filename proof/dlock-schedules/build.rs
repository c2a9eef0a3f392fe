//! Sets the condition under which the core takes its primitives from shuttle.

fn main() {
    println!("cargo::rustc-cfg=dlock_schedules");
}
