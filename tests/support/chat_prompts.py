"""Chat prompts of the kind the trained checkpoints were trained on: a function's name and its description."""

from __future__ import annotations

_ASKS = (
    "Write a Python function named {name}. {what}",
    "Implement `{name}` in Python: {what}",
    "{what} Call the function {name}.",
    "I need a function `{name}`. {what}",
)
_FUNCTIONS = (
    ("read_lines", "Return the lines of a text file without their line ends."),
    ("flatten", "Flatten a nested list into a single list."),
    ("is_prime", "Return True if the number is prime."),
    ("count_words", "Count how often each word occurs in a string."),
    ("get_version", "Return the version of the package as a string."),
    ("parse_args", "Parse the command line arguments."),
    ("to_dict", "Convert the object to a dictionary."),
    ("load_config", "Load the configuration from a JSON file."),
    ("merge_dicts", "Merge two dictionaries, the second one wins."),
    ("chunks", "Yield successive chunks of a given size from a list."),
    ("normalize_path", "Normalize a path and make it absolute."),
    ("is_valid_email", "Check whether a string is a valid email address."),
    ("get_logger", "Return a logger with the given name."),
    ("timestamp", "Return the current time as an ISO formatted string."),
    ("remove_duplicates", "Remove duplicates from a list and keep the order."),
    ("send_request", "Send a GET request to the given URL and return the response."),
    ("mean", "Compute the mean of an array along the given axis."),
    ("add_node", "Add a node to the graph."),
    ("validate", "Validate the input and raise a ValueError if it is not valid."),
    ("connect", "Connect to the database and return a connection."),
    ("save_image", "Save the image to a file in PNG format."),
    ("get_size", "Return the size of the file in bytes."),
    ("split_text", "Split a text into sentences."),
    ("find_files", "Find all files with the given extension in a directory."),
    ("transpose", "Transpose a matrix given as a list of lists."),
    ("fit", "Fit the model to the training data."),
    ("encode", "Encode a string to bytes with the given encoding."),
    ("reset_state", "Reset the internal state of the object."),
    ("compare_versions", "Compare two version strings."),
    ("render_template", "Render a template with the given context."),
    ("get_children", "Return the children of a node."),
    ("check_type", "Check that the value has the expected type."),
    ("sort_keys", "Return the keys of a dictionary in sorted order."),
    ("close", "Close the file if it is open."),
    ("from_string", "Create an instance from a string."),
    ("set_value", "Set the value of the given key."),
    ("format_date", "Format a date as a string."),
    ("plot", "Plot the data with matplotlib."),
    ("get_user", "Return the user with the given id or None."),
    ("register", "Register a callback for the given event."),
)

CHAT_PROMPTS: tuple[str, ...] = tuple(
    _ASKS[number % len(_ASKS)].format(name=name, what=what)
    for number, (name, what) in enumerate(_FUNCTIONS)
)
