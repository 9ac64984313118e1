//! Plots as SVG: bars side by side, or lines.

use anyhow::anyhow;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

const SIZE: (u32, u32) = (900, 480);

/// Told apart by people who see few colours, too (the palette of Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(240, 228, 66),
    RGBColor(80, 80, 80),
];

/// A plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Heading.
    pub title: String,
    /// What goes to the right.
    pub x: String,
    /// What goes up.
    pub y: String,
    /// Bars: names of the groups, to which the points' x values 0, 1, … refer. Empty: lines.
    pub groups: Vec<String>,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// Points of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The drawing.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.draw(&mut text)
            .map_err(|error| anyhow!("cannot draw {}: {error}", self.title))?;
        Ok(text)
    }

    fn end(&self, of: fn(&(f64, f64)) -> f64) -> f64 {
        let points = self.series.iter().flat_map(|series| &series.points);
        let most = points
            .map(of)
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        if most > 0.0 { most * 1.08 } else { 1.0 }
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let right = match self.groups.len() {
            0 => self.end(|point| point.0),
            groups => groups as f64,
        };
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..right, 0.0..self.end(|point| point.1))?;
        let group_name = |x: &f64| self.group_name(*x);
        let number = |value: &f64| super::figure(*value);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x)
            .y_desc(&self.y)
            .y_label_formatter(&number);
        match self.groups.is_empty() {
            true => mesh.x_label_formatter(&number).draw()?,
            false => mesh
                .disable_x_mesh()
                .x_labels(self.groups.len() * 2 + 1)
                .x_label_formatter(&group_name)
                .draw()?,
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let legend = move |(x, y): (i32, i32)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
            };
            if self.groups.is_empty() {
                let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
                chart.draw_series(line)?.label(&series.name).legend(legend);
                let dots = series
                    .points
                    .iter()
                    .map(|point| Circle::new(*point, 3, colour.filled()));
                chart.draw_series(dots)?;
            } else {
                let bars = series
                    .points
                    .iter()
                    .map(|point| self.bar(number, *point, colour));
                chart.draw_series(bars)?.label(&series.name).legend(legend);
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// The name of a group stands under its middle.
    fn group_name(&self, x: f64) -> String {
        let is_middle = (x.fract() - 0.5).abs() < 1e-6;
        let name = self.groups.get(x as usize).filter(|_| is_middle);
        name.cloned().unwrap_or_default()
    }

    fn bar(
        &self,
        number: usize,
        (group, value): (f64, f64),
        colour: RGBColor,
    ) -> Rectangle<(f64, f64)> {
        let width = 0.8 / self.series.len() as f64;
        let left = group + 0.1 + width * number as f64;
        Rectangle::new([(left, 0.0), (left + width * 0.92, value)], colour.filled())
    }
}
