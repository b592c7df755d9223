"""Index space: from a cursor to the plan of the next step, and what names an order and a plan."""
