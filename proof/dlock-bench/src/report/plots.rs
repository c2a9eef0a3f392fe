//! The plots: for each scenario a bar for each contestant of each store, and for the crowds a line
//! over the number of clients.
//!
//! Scales are logarithmic: one plot contains a store in the process and a store that waits for its
//! disk.

use std::{collections::BTreeMap, ops::Range, path::Path};

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    results::{Part, Results},
    spread,
};
use crate::{
    Failure,
    crew::contestant::Role,
    figures::{Figure, Spread},
};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A bar with its name.
struct Bar<'a> {
    name: String,
    role: Role,
    value: &'a Spread,
}

const WIDTH: u32 = 900;
const BAR: u32 = 22;
const AROUND: u32 = 70;
/// The golden ratio: its multiples are far from each other on a circle.
const GOLDEN: f64 = 0.618;
/// The width of the names on the left.
const NAMES: u32 = 250;

/// Writes all plots.
pub(super) fn write(results: &Results, directory: &Path) -> Result<(), Failure> {
    let mut scenarios: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    for part in &results.parts {
        scenarios.entry(&part.scenario).or_default().push(part);
    }
    for (scenario, parts) in &scenarios {
        let path = directory.join(format!("{scenario}.svg"));
        bars(&path, parts).map_err(|failure| format!("{}: {failure}", path.display()))?;
    }
    let path = directory.join("crowd.svg");
    crowds(&path, &results.parts).map_err(|failure| format!("{}: {failure}", path.display()))?;
    Ok(())
}

/// Draws a bar for each contestant of each store; nothing if there are none.
fn bars(path: &Path, parts: &[&Part]) -> Result<(), Failure> {
    let all = parts.iter().flat_map(|part| {
        part.entries.iter().filter_map(|entry| {
            let value = entry.figures.get(&part.main).filter(|value| value.median > 0.0)?;
            let name = format!("{}: {}", part.store.name(), entry.name);
            Some(Bar { name, role: entry.role, value })
        })
    });
    let all: Vec<Bar<'_>> = all.collect();
    let Some(first) = parts.first().filter(|_| !all.is_empty()) else { return Ok(()) };
    let count = u32::try_from(all.len())?;
    let area = SVGBackend::new(path, (WIDTH, count * BAR + AROUND)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{} ({})", first.about, first.main.label());
    draw_bars(&area, &title, &all)?;
    Ok(area.present()?)
}

fn draw_bars(area: &Area<'_>, title: &str, bars: &[Bar<'_>]) -> Result<(), Failure> {
    let range = decades(bars.iter().map(|bar| bar.value));
    let rows = i32::try_from(bars.len())?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .margin_right(130)
        .x_label_area_size(25)
        .y_label_area_size(NAMES)
        .build_cartesian_2d(range.clone().log_scale(), 0..rows * 10)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().max_light_lines(1).draw()?;
    let right = |size: i32, place: HPos| {
        ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(place, VPos::Center))
    };
    for (row, bar) in (0..rows).rev().zip(bars) {
        let (low, middle, high) = (row * 10 + 2, row * 10 + 5, row * 10 + 8);
        let value = bar.value;
        chart.plotting_area().draw(&Rectangle::new(
            [(range.start, low), (value.median, high)],
            colour(bar.role).filled(),
        ))?;
        let ends = [(value.p10.max(range.start), middle), (value.p90, middle)];
        chart.plotting_area().draw(&PathElement::new(ends, BLACK.stroke_width(1)))?;
        let (left, y) = chart.plotting_area().map_coordinate(&(range.start, middle));
        area.draw(&Text::new(bar.name.clone(), (left - 6, y), right(13, HPos::Right)))?;
        let (end, y) = chart.plotting_area().map_coordinate(&(value.p90.max(value.median), middle));
        area.draw(&Text::new(spread(value), (end + 6, y), right(12, HPos::Left)))?;
    }
    Ok(())
}

/// Draws hand-offs per second over the number of clients, with a line for each contestant of each
/// store.
fn crowds(path: &Path, parts: &[Part]) -> Result<(), Failure> {
    let mut lines: BTreeMap<String, (Role, Vec<(f64, f64)>)> = BTreeMap::new();
    for part in parts {
        let Some(clients) = part.scenario.strip_prefix("crowd-") else { continue };
        for entry in part.entries.iter().filter(|entry| entry.role != Role::Baseline) {
            if let Some(rate) = entry.median(Figure::Rate).filter(|rate| *rate > 0.0) {
                let name = format!("{}: {}", part.store.name(), entry.name);
                let line = lines.entry(name).or_insert((entry.role, Vec::new()));
                line.1.push((clients.parse()?, rate));
            }
        }
    }
    // With only one size of crowd there is no line.
    if lines.values().all(|(_, points)| points.len() < 2) {
        return Ok(());
    }
    let rates = lines.values().flat_map(|(_, points)| points.iter().map(|(_, rate)| *rate));
    let (low, high) = ends(rates);
    let area = SVGBackend::new(path, (WIDTH, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("hand-offs per second of one lock", ("sans-serif", 16))
        .margin(8)
        .margin_right(250)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((8.0..512.0).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        .x_labels(3)
        .x_desc("clients in 8 processes")
        .draw()?;
    let mut last = i32::MIN;
    let mut drawn: Vec<_> = lines.iter().collect();
    let end = |points: &[(f64, f64)]| points.last().map_or(0.0, |(_, rate)| *rate);
    drawn.sort_by(|a, b| end(&b.1.1).total_cmp(&end(&a.1.1)));
    for (at, (name, (_, points))) in drawn.into_iter().enumerate() {
        // A hue far from the previous one, and dark enough for a white background.
        let hue = (f64::from(u32::try_from(at)?) * GOLDEN).fract();
        let colour = HSLColor(hue, 0.8, 0.35).to_rgba();
        chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        let dots = points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots)?;
        // The name is next to the end of the line, below the previous name.
        let Some(point) = points.last() else { continue };
        let (x, y) = chart.plotting_area().map_coordinate(point);
        last = y.max(last.saturating_add(14));
        let style = ("sans-serif", 12).into_font().color(&colour);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(name.clone(), (x + 8, last), style))?;
    }
    Ok(area.present()?)
}

/// Returns the range from a power of ten below all values to one above them.
fn decades<'a>(values: impl Iterator<Item = &'a Spread>) -> Range<f64> {
    let (low, high) = ends(values.flat_map(|value| [value.median, value.p90]));
    low..high
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::MIN_POSITIVE);
    for value in values.filter(|value| *value > 0.0 && value.is_finite()) {
        low = low.min(value);
        high = high.max(value);
    }
    let low = 10_f64.powf(low.log10().floor());
    let high = 10_f64.powf(high.log10().ceil());
    // Every bar needs a length, even if its value is a power of ten.
    if low < high { (low / 2.0, high) } else { (low / 2.0, low * 10.0) }
}

fn colour(role: Role) -> RGBColor {
    match role {
        Role::Baseline => RGBColor(190, 190, 190),
        Role::Dlock => RGBColor(31, 119, 180),
        Role::Peer => RGBColor(255, 187, 120),
        Role::FairPeer => RGBColor(230, 126, 34),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{report::results::Entry, store::Store};

    fn part(clients: u32) -> Part {
        let rate = Spread::of(&[f64::from(clients) * 10.0, 400.0], None).unwrap();
        let entry = Entry {
            name: "dlock".to_owned(),
            role: Role::Dlock,
            is_baseline: false,
            figures: [(Figure::Rate, rate)].into_iter().collect(),
        };
        Part {
            store: Store::Redis,
            version: String::new(),
            scenario: format!("crowd-{clients}"),
            about: "clients".to_owned(),
            main: Figure::Rate,
            entries: vec![entry],
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_plot_names_each_contestant() {
        let directory = tempfile::tempdir().unwrap();
        let results = Results { parts: vec![part(8), part(64)], ..Results::default() };
        write(&results, directory.path()).unwrap();
        for plot in ["crowd-8.svg", "crowd-64.svg", "crowd.svg"] {
            let svg = std::fs::read_to_string(directory.path().join(plot)).unwrap();
            assert!(svg.contains("redis: dlock"), "{plot}: {svg}");
        }
    }

    #[test]
    fn a_scale_has_all_values_and_is_never_empty() {
        assert_eq!(ends([3.0, 250.0].into_iter()), (0.5, 1000.0));
        assert_eq!(ends([10.0].into_iter()), (5.0, 100.0));
    }
}
