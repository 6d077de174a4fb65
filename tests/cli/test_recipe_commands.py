from springtide.recipe import builtin_recipes, load_recipe


def test_list_names_every_built_in_recipe(springtide):
    text = springtide("recipe", "list").stdout
    for name in builtin_recipes():
        assert name in text
        assert load_recipe(name).description in text


def test_show_prints_a_recipe_that_can_be_edited_and_used(springtide, tmp_path):
    shown = springtide("recipe", "show", "quickstart", "--set", "seed=7").stdout
    (tmp_path / "mine.toml").write_text(shown)
    assert load_recipe("mine.toml") == load_recipe("quickstart", ["seed=7"])
    assert "# Train steps in the run." in shown


def test_check_says_what_the_recipe_would_do(springtide):
    result = springtide(
        "recipe", "check", "quickstart", "--set", "scheduling.steps=7", "--set", "scheduling.groups_per_step=8"
    )
    assert result.exit_code == 0
    assert result.stdout.startswith("quickstart is valid: ")
    assert "7 train steps of 8 groups with 8 episodes each (sync)" in result.stdout


def test_check_explains_each_mistake(springtide):
    result = springtide("recipe", "check", "quickstart", "--set", "seed=-1", "--set", "nmae=x")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "seed = -1 is not allowed" in result.stderr
    assert "nearest valid name is name" in result.stderr
    assert len(result.stderr.splitlines()) == 2
