"""The HTML report in a real browser: nothing leaves the file, everything is drawn, reachable and right."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from report_plan import COMMAND, HOSTILE_NAME

from pddplan.report.catalogue_text import TEXT
from pddplan.report.compare_page import compare_page
from pddplan.report.html import render
from pddplan.report.plan_page import plan_page, report_source

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def source(planned):
    return report_source(*planned, COMMAND)


@pytest.fixture(scope="module")
def page_file(source, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "报告 report.html"
    path.write_text(render(plan_page(source)), encoding="utf-8")
    return path


def test_catalogue_has_both_languages_with_the_same_names():
    for key, (english, chinese) in TEXT.items():
        assert english, key
        assert chinese, key
        assert set(re.findall(r"{(\w+)", english)) == set(re.findall(r"{(\w+)", chinese)), key


def test_sections_come_in_the_order_of_the_reader(source):
    ids = [section.id for section in plan_page(source).sections]
    assert ids[:5] == ["decision", "money", "sla", "deployment", "bandwidth"]
    assert ids[-3:] == ["accuracy", "glossary", "scenario"]
    assert len(ids) == len(set(ids))


def test_block_ids_are_unique(source):
    ids = [block.id for block in plan_page(source).blocks() if hasattr(block, "id")]
    assert len(ids) == len(set(ids))


def test_page_is_small_and_names_no_outside_resource(page_file):
    text = page_file.read_text(encoding="utf-8")
    assert len(text.encode()) < 4e6
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r'(?:src|href)="(?!#|data:)', markup)
    assert "@import" not in markup
    assert "url(" not in markup


def test_numbers_in_the_page_are_those_of_the_plan(page_file, planned):
    text = page_file.read_text(encoding="utf-8")
    metrics = planned[1].evaluation.metrics
    shown = set(re.findall(r'data-value="([^"]+)"', text))
    for name in ("goodput_rps", "cost_usd_per_h", "bcr", "ttft_p50_s", "ttft_p99_s", "usd_per_million_output_tokens"):
        assert str(getattr(metrics, name)) in shown, name


def test_chinese_page_says_so(source):
    text = render(plan_page(source, "zh"))
    assert '<html lang="zh-CN">' in text
    assert "结论" in text


def test_two_plans_stand_side_by_side(planned):
    text = render(compare_page(planned, planned, "pddplan report a.json b.json"))
    assert "BCR +0 %" in text


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
class TestBrowser:
    @pytest.fixture
    def opened(self, browser, page_file):
        made = []

        def open_page(width: int = 1280, scheme: str = "light"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.problems, page.requests = [], []
            page.on("console", lambda message: page.problems.append(message.text))
            page.on("pageerror", lambda error: page.problems.append(str(error)))
            page.on("request", lambda request: page.requests.append(request.url))
            page.on("dialog", lambda dialog: (page.problems.append("dialog"), dialog.dismiss()))
            page.goto(page_file.as_uri())
            page.locator("html[data-drawn=screen]").wait_for(state="attached")
            made.append(page)
            return page

        yield open_page
        for page in made:
            page.close()

    @pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
    def test_opens_without_error_request_or_sideways_scroll(self, opened, width, scheme):
        page = opened(width, scheme)
        assert page.problems == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    def test_every_figure_has_drawn_something(self, opened):
        page = opened()
        count = page.evaluate("document.querySelectorAll('.plot').length")
        assert count >= 8
        marks = "svg .scatterlayer path, svg .barlayer path, svg .pielayer path"
        drawn = page.evaluate(f"[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('{marks}').length)")
        assert all(number > 0 for number in drawn), drawn
        assert page.evaluate("document.querySelector('.drawing svg rect') !== null")

    def test_a_name_with_markup_is_only_a_name(self, opened):
        page = opened()
        assert HOSTILE_NAME in page.inner_text("h1")
        assert page.evaluate("document.querySelectorAll('h1 script').length") == 0

    def test_contents_lead_to_their_sections(self, opened):
        page = opened()
        links = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))")
        assert len(links) >= 12
        for href in links:
            page.click(f"nav a[href='{href}']")
            page.wait_for_url(lambda url, href=href: url.endswith(href))
            assert page.locator(href).count() == 1

    def test_no_two_elements_share_an_id(self, opened):
        ids = opened().evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert sorted(ids) == sorted(set(ids))

    def test_csv_download_gives_the_table(self, opened, planned):
        page = opened()
        with page.expect_download() as download:
            page.click("button[data-action=csv][data-table=pools]")
        rows = list(csv.reader(Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()))
        pools = planned[1].evaluation.pools
        assert len(rows) == 1 + len(pools) + 1
        assert rows[1][0] == pools[0].pool.configuration.role
        assert float(rows[1][-1]) == pools[0].cost_usd_per_h

    def test_copy_says_that_it_copied(self, opened):
        page = opened()
        button = page.locator("button[data-action=copy][data-table=pools]")
        button.click()
        page.locator("button[data-action=copy][data-table=pools]:text-is('Copied')").wait_for()

    def test_hover_shows_values_with_units(self, opened):
        page = opened()
        figures = page.evaluate("JSON.parse(document.getElementById('figures').textContent)")
        template = next(figure for figure in figures if figure["id"] == "fig-ttft")["traces"][0]["hovertemplate"]
        assert "%{y" in template
        assert " s" in template

    def test_prints_without_cut_figures(self, opened):
        page = opened()
        page.emulate_media(media="print")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.locator("html[data-drawn=print]").wait_for(state="attached")
        widths = page.evaluate("[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().width)")
        assert max(widths) <= 690  # A4 less margins at 96 px an inch
        assert page.pdf(format="A4").startswith(b"%PDF")

    def test_keyboard_reaches_every_link_and_button(self, opened):
        page = opened()
        unreachable = page.evaluate("[...document.querySelectorAll('a[href], button, summary')].filter(e => e.tabIndex < 0).length")
        assert unreachable == 0

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_no_serious_violation(self, opened, scheme):
        import axe_playwright_python

        page = opened(scheme=scheme)
        page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
        results = page.evaluate("axe.run(document, {resultTypes: ['violations'], rules: {'frame-tested': {enabled: false}}})")
        serious = [(v["id"], v["nodes"][0]["html"][:200]) for v in results["violations"] if v["impact"] in ("serious", "critical")]
        assert serious == [], json.dumps(serious, indent=1)
